"""``/metrics``: who may read it, and what an answer looks like."""

from __future__ import annotations

import logging

import pytest
from http_served import Served, assert_problem, js, next_message, request, served

from gateway.domain.model import Principal
from gateway.errors import Unauthenticated
from gateway.service.tally import Tally

SCRAPE = "scrape-token-of-some-length"
FIGURES = b"# HELP sandglass_build_info 1\n"


class FakeFigures:
    def text(self) -> bytes:
        return FIGURES


async def read(s: Served, authorization: str | None, path: str = "/metrics", **headers: str) -> tuple[int, str]:
    sent = {"Authorization": authorization} if authorization is not None else {}
    response = await s.call("GET", path, user=None, headers={**sent, **headers})
    if response.code == 200:
        assert response.body == FIGURES
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert response.headers["Cache-Control"] == "no-store"
        return 200, ""
    return response.code, assert_problem(response, response.code, js(response)["code"])["code"]


@served()
async def test_who_may_read_the_figures(s: Served) -> None:
    s.deps.figures = FakeFigures()
    for configured in (b"", SCRAPE.encode()):
        s.deps.scrape_token = configured
        assert await read(s, "Bearer root/t1/admin") == (200, "")
        assert await read(s, None) == (401, "unauthenticated")
        for bad in ("Bearer", "Bearer expired", "Basic YTpi", "Bearer " + "x" * 20_000):
            assert await read(s, bad) == (401, "unauthenticated")
        for other in ("Bearer alice", "Bearer boss/t1/tenant_admin"):
            assert await read(s, other) == (403, "forbidden")
        assert await read(s, f"Bearer {SCRAPE}") == ((200, "") if configured else (403, "forbidden"))
        for near in (SCRAPE[:-1], SCRAPE + "x", SCRAPE.upper(), "ü" + SCRAPE[1:]):
            assert (await read(s, f"Bearer {near}"))[0] in (401, 403)


@served()
async def test_only_the_header_counts(s: Served) -> None:
    """No link and no page can bring a browser's cookie or a token in an address here."""
    s.deps.figures, s.deps.scrape_token = FakeFigures(), SCRAPE.encode()
    made = await s.call("POST", "/api/v1/tickets", {"purpose": "login"}, user="root/t1/admin")
    logged_in = await s.call("GET", js(made)["url"].removeprefix(s.url), user=None)
    cookie = logged_in.headers["Set-Cookie"].split(";")[0]
    assert await read(s, None, Cookie=cookie) == (401, "unauthenticated")
    for token in (SCRAPE, "root/t1/admin"):
        assert await read(s, None, f"/metrics?token={token}") == (401, "unauthenticated")
    assert (await s.call("POST", "/metrics", {}, user="root/t1/admin")).code == 405


@served()
async def test_the_scrape_token_opens_nothing_else(s: Served) -> None:
    s.deps.scrape_token = SCRAPE.encode()
    s.deps.tokens = Strict()
    for path in ("/api/v1/me", "/api/v1/sessions", "/api/v1/admin/sessions", "/api/v1/admin/audit", "/api/kernels"):
        assert_problem(await s.call("GET", path, user=SCRAPE), 401, "unauthenticated")
    assert_problem(await s.call("GET", "/metrics", user=SCRAPE), 503, "unavailable")  # no figures are kept here


class Strict:
    """Knows nobody: ``FakeTokens`` takes any word for a user."""

    def verify(self, token: str) -> Principal:
        raise Unauthenticated("The token is not valid.")


def test_the_token_is_in_no_log_and_no_repr(caplog: pytest.LogCaptureFixture) -> None:
    @served()
    async def run(s: Served) -> None:
        s.deps.figures, s.deps.scrape_token = FakeFigures(), SCRAPE.encode()
        s.deps.tokens = Strict()
        assert await read(s, f"Bearer {SCRAPE}") == (200, "")
        assert await read(s, f"Bearer {SCRAPE}x") == (401, "unauthenticated")
        assert SCRAPE not in repr(s.deps)

    with caplog.at_level(logging.DEBUG):
        run()
    lines = [r for r in caplog.records if getattr(r, "path", "") == "/metrics" and r.getMessage() == "request"]
    assert lines and all(r.levelno == logging.DEBUG for r in lines)
    assert SCRAPE not in " ".join(str(vars(r)) for r in caplog.records)


@served()
async def test_bytes_of_clients_are_counted(s: Served) -> None:
    tally: Tally = s.deps.tally
    session = await s.session()
    ws = await s.ws(session.session_id)
    sent = request("execute_request", {"code": "x" * 5000})
    ws.write_message(sent, binary=True)
    for _ in range(4):
        await next_message(ws)
    assert tally.websocket_in == len(sent)
    assert 5000 < tally.websocket_out < 20_000
    reader, writer = await s.connect()
    writer.write(f"GET /api/v1/sessions/{session.session_id}/events?after=0 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice\r\n\r\n".encode())
    await reader.readuntil(b"execute_reply")
    await reader.readuntil(b"idle")
    assert tally.events_out > 1000
