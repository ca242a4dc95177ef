"""Credentials and origins: where a token may stand, whose name counts, and what never reaches a log."""

from __future__ import annotations

import asyncio
import logging

import pytest
from http_served import Served, assert_problem, js, served

from gateway.http.gate import take_token


@served()
async def test_where_a_token_may_stand(s: Served) -> None:
    for value in ("Bearer alice", "bearer alice", "token alice", "TOKEN alice", "Token   alice"):
        assert (await s.call("GET", "/api/kernels", user=None, headers={"Authorization": value})).code == 200
    assert (await s.call("GET", "/api/kernels?token=alice", user=None)).code == 200
    assert (await s.call("POST", "/api/kernels?token=alice", user=None)).code == 201
    assert (await s.call("GET", "/api/v1/sessions?all=0&token=alice", user=None)).code == 200
    assert_problem(await s.call("POST", "/api/v1/sessions?token=alice", {}, user=None), 401, "unauthenticated")
    for headers in (
        {},
        {"Authorization": "Basic YTpi"},
        {"Authorization": "Bearer expired"},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer " + "x" * 20_000},
        {"Cookie": "sandglass_page=nope"},
        {"X-Sandglass-Query-Token": "alice"},
    ):
        for path in ("/api", "/api/kernels", "/api/status", "/api/kernelspecs", "/api/sessions", "/api/v1/me"):
            response = await s.call("GET", path, user=None, headers=headers)
            assert_problem(response, 401, "unauthenticated")
            assert response.headers["WWW-Authenticate"].startswith("Bearer")


@served()
async def test_a_credential_that_fails_is_not_replaced_by_another(s: Served) -> None:
    cookie = await log_in(s)
    for headers in ({"Authorization": "Bearer expired", "Cookie": cookie},):
        assert_problem(await s.call("GET", "/api/v1/me", user=None, headers=headers), 401, "unauthenticated")
    assert_problem(
        await s.call("GET", "/api/v1/me?token=expired", user=None, headers={"Cookie": cookie}), 401, "unauthenticated"
    )
    both = await s.call("GET", "/api/v1/me", user="bob", headers={"Cookie": cookie})
    assert js(both)["user"] == "bob"


async def log_in(s: Served, user: str = "alice") -> str:
    """The page's cookie, through a ticket."""
    made = await s.call("POST", "/api/v1/tickets", {"purpose": "login"}, user=user)
    assert made.code == 201 and js(made)["url"].startswith(s.url)
    response = await s.call("GET", js(made)["url"].removeprefix(s.url), user=None)
    assert response.code == 303 and response.headers["Location"] == "/"
    cookie = response.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Path=/" in cookie and "Secure" not in cookie
    return cookie.split(";")[0]


@served()
async def test_login_links_work_once(s: Served) -> None:
    ticket = js(await s.call("POST", "/api/v1/tickets", {"purpose": "login"}))["ticket"]
    assert (await s.call("GET", f"/login?ticket={ticket}", user=None)).code == 303
    for path in (f"/login?ticket={ticket}", "/login", "/login?ticket=x"):
        again = await s.call("GET", path, user=None)
        assert again.code == 401 and b"works once" in again.body and "Set-Cookie" not in again.headers
        assert again.headers["Content-Type"].startswith("text/html")
    assert_problem(await s.call("POST", "/api/v1/tickets", {"purpose": "root"}), 400, "bad_request")
    assert "url" not in js(await s.call("POST", "/api/v1/tickets", {"purpose": "attach"}))


@served()
async def test_a_cookie_needs_the_pages_own_origin_to_change_anything(s: Served) -> None:
    cookie = await log_in(s)
    assert (await s.call("GET", "/api/v1/me", user=None, headers={"Cookie": cookie})).code == 200
    for origin in (
        None,
        "null",
        "http://evil.example",
        f"http://127.0.0.1:{s.frame_port}",
        f"http://localhost:{s.port}",
        "::",
    ):
        headers = {"Cookie": cookie} | ({"Origin": origin} if origin else {})
        assert_problem(await s.call("POST", "/api/v1/sessions", {}, user=None, headers=headers), 403, "forbidden")
    assert not s.gateway.held
    own = {"Cookie": cookie, "Origin": s.url}
    assert (await s.call("POST", "/api/v1/sessions", {}, user=None, headers=own)).code == 201
    named = {"Cookie": cookie, "Origin": f"http://localhost:{s.port}", "Host": f"localhost:{s.port}"}
    assert (await s.call("POST", "/api/v1/sessions", {}, user=None, headers=named)).code == 201
    s.deps.origins = frozenset({"https://lab.example"})
    configured = {"Cookie": cookie, "Origin": "https://lab.example"}
    assert (await s.call("POST", "/api/v1/sessions", {}, user=None, headers=configured)).code == 201
    # a bearer token says who it is by itself
    assert (await s.call("POST", "/api/v1/sessions", {}, headers={"Origin": "http://evil.example"})).code == 201


@served()
async def test_logging_out(s: Served) -> None:
    cookie = await log_in(s)
    foreign = await s.call("POST", "/logout", user=None, headers={"Cookie": cookie, "Origin": "http://evil.example"})
    assert_problem(foreign, 403, "forbidden")
    assert (await s.call("POST", "/logout", user=None, headers={"Cookie": cookie, "Origin": s.url})).code == 204
    assert_problem(await s.call("GET", "/api/v1/me", user=None, headers={"Cookie": cookie}), 401, "unauthenticated")
    assert (await s.call("POST", "/logout", user=None)).code == 204


@served()
async def test_an_open_page_stays_logged_in(s: Served) -> None:
    cookie = await log_in(s)
    s.pages.cookies["x-old"] = s.pages.cookies[cookie.split("=")[1]]
    for path in ("/", "/api/v1/me"):
        response = await s.call("GET", path, user=None, headers={"Cookie": "sandglass_page=x-old"})
        assert response.code == 200 and response.headers["Set-Cookie"].startswith("sandglass_page=x;")
        assert "Set-Cookie" not in (await s.call("GET", path, user=None, headers={"Cookie": cookie})).headers


@served()
async def test_the_page_and_its_files(s: Served) -> None:
    shut = await s.call("GET", "/", user=None)
    assert shut.code == 401 and b"login link" in shut.body
    crossing = await s.call("GET", "/", user=None, headers={"Sec-Fetch-Site": "cross-site"})
    assert crossing.code == 200 and b"refresh" in crossing.body
    cookie = await log_in(s)
    page = await s.call("GET", "/", user=None, headers={"Cookie": cookie})
    assert page.code == 200 and b"<title>host" in page.body
    policy = page.headers["Content-Security-Policy"]
    assert f"frame-src http://127.0.0.1:{s.frame_port};" in policy and "unsafe" not in policy
    file = await s.call("GET", "/static/main.js", user=None)
    assert file.code == 200 and "javascript" in file.headers["Content-Type"]
    again = await s.call("GET", "/static/main.js", user=None, headers={"If-None-Match": file.headers["Etag"]})
    assert again.code == 304
    for path in ("/static/.hidden", "/static/../frame/main.js", "/static/%2e%2e/frame/main.js", "/static//etc/passwd"):
        response = await s.call("GET", path, user=None)
        assert response.code in (403, 404) and response.headers["Content-Type"] == "application/problem+json", path


@served()
async def test_the_frames_origin(s: Served) -> None:
    cookie = await log_in(s)
    for path in ("/", "/index.html", "/main.js"):
        response = await s.call("GET", path, user=None, port=s.frame_port, headers={"Cookie": cookie})
        assert response.code == 200
        policy = response.headers["Content-Security-Policy"]
        assert policy.startswith("sandbox allow-scripts; default-src 'none'") and "allow-same-origin" not in policy
        assert f"frame-ancestors {s.url}" in policy and f"script-src http://127.0.0.1:{s.frame_port};" in policy
        assert response.headers["X-DNS-Prefetch-Control"] == "off" and "X-Frame-Options" not in response.headers
        assert "Set-Cookie" not in response.headers and "Server" not in response.headers
    named = await s.call("GET", "/", user=None, port=s.frame_port, headers={"Host": f"localhost:{s.frame_port}"})
    assert f"http://localhost:{s.port}" in named.headers["Content-Security-Policy"]
    for path in ("/api/v1/me", "/api/kernels", "/login", "/healthz", "/.hidden"):
        response = await s.call("GET", path, port=s.frame_port)
        assert response.code == 404 and "X-Frame-Options" not in response.headers
    assert (await s.call("POST", "/", {}, port=s.frame_port)).code == 405


@pytest.mark.parametrize(
    ("target", "left", "token"),
    [
        ("/a", "/a", None),
        ("/a?b=1", "/a?b=1", None),
        ("/a?token=T", "/a", "T"),
        ("/a?token=T&b=1", "/a?b=1", "T"),
        ("/a?b=1&token=T&c=2", "/a?b=1&c=2", "T"),
        ("/a?token=T1&token=T2", "/a", "T1"),
        ("/a?to%6ben=T", "/a?to%6ben=T", None),
        ("/a?token=a%2Bb", "/a", "a+b"),
        ("/a?mytoken=T", "/a?mytoken=T", None),
        ("/a?token", "/a", ""),
    ],
)
def test_taking_a_token_out_of_a_target(target: str, left: str, token: str | None) -> None:
    assert take_token(target) == (left, token)


def test_secrets_never_reach_a_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    @served()
    async def run(s: Served) -> None:
        session = await s.session()
        session.keep_alive = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
        secret = "secret-sesame"
        await s.call("GET", f"/api/kernels?token={secret}", user=None)
        await s.call("GET", f"/nowhere?token={secret}", user=None)
        await s.call("GET", f"/login?ticket={secret}", user=None)
        await s.call("POST", f"/api/v1/sessions/{session.session_id}/keep-alive?token={secret}", {}, user="alice")
        await s.call("GET", "/api/kernels", user=secret)
        ws = await s.ws(session.session_id, query=f"token=alice&session_id={secret}x")
        await ws.write_message(secret)
        ws.close()
        await s.raw(f"GET /?token={secret} HTTP/1.1\r\nHost a\r\n\r\n".encode())
        await asyncio.sleep(0.05)

    run()
    ours = [r for r in caplog.records if not r.name.startswith("asyncio")]
    assert any(r.name == "sandglass.access" for r in ours)
    text = "\n".join(
        f"{r.getMessage()} {r.__dict__}" for r in ours if "secret-sesame" in f"{r.getMessage()} {r.__dict__}"
    )
    # A user's name is no secret, and with the fake a token is a name.
    assert "token=" not in text and "ticket=" not in text, text
