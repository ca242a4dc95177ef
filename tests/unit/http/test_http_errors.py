"""Every error of the tree has a status, and every way to fail comes out in the one shape."""

from __future__ import annotations

import json

from http_served import Served, assert_problem, js, served

from gateway import errors as tree
from gateway.errors import CapacityExhausted, SandglassError, Unavailable
from gateway.http import errors


def every_class(root: type[SandglassError]) -> list[type[SandglassError]]:
    return [root, *(c for sub in root.__subclasses__() for c in every_class(sub))]


def test_the_map_is_total_and_holds_nothing_else() -> None:
    codes = {cls.code for cls in every_class(SandglassError)}
    assert codes == set(errors.STATUS)
    assert len(codes) >= 20
    assert all(cls.__module__ == tree.__name__ for cls in every_class(SandglassError))


def test_the_map_is_the_documented_one() -> None:
    expected = {
        400: {"bad_request", "path_refused"},
        401: {"unauthenticated", "user_disabled"},
        403: {"forbidden"},
        404: {"not_found"},
        409: {"conflict", "invalid_transition", "generation_mismatch"},
        410: {"session_ended"},
        413: {"too_large"},
        429: {"quota_exceeded"},
        422: {"artifact_rejected"},
        500: {"platform_fault"},
    }
    for status, codes in expected.items():
        assert {c for c, s in errors.STATUS.items() if s == status} == codes
    assert {s for c, s in errors.STATUS.items() if c not in set().union(*expected.values())} == {503}


def test_a_problem_says_what_and_when() -> None:
    status, body = errors.problem(CapacityExhausted("No sandbox is free.", capacity=2))
    assert (status, body["code"], body["reason"], body["retry_after"], body["capacity"]) == (
        503,
        "capacity_exhausted",
        "capacity_exhausted",
        15.0,
        2,
    )
    assert body["message"] == body["detail"] == "No sandbox is free."
    assert errors.headers_of(status, body)["Retry-After"] == "15"
    status, body = errors.problem(Unavailable("x", retry_after=0.2))
    assert errors.headers_of(status, body)["Retry-After"] == "1"


def test_extra_members_never_replace_the_fixed_ones() -> None:
    _, body = errors.problem(SandglassError("d", status=200, code="ok", reason="none"))
    assert (body["status"], body["code"], body["reason"]) == (500, "platform_fault", "platform_fault")


def test_what_is_not_ours_keeps_its_text_to_itself() -> None:
    status, body = errors.problem(ValueError("/srv/secret/path token=abc"))
    assert status == 500 and body["code"] == "platform_fault"
    assert "secret" not in json.dumps(body)


@served()
async def test_the_frameworks_own_errors(s: Served) -> None:
    assert_problem(await s.call("GET", "/nowhere"), 404, "not_found")
    assert_problem(await s.call("GET", "/hub/api", user=None), 404, "not_found")
    assert_problem(await s.call("GET", "/tree", user=None), 404, "not_found")
    assert_problem(await s.call("GET", "/api/contents"), 404, "not_found")
    assert_problem(await s.call("GET", "/static/none.js", user=None), 404, "not_found")
    response = await s.call("DELETE", "/api/kernels")
    assert_problem(response, 405, "method_not_allowed")
    assert set(response.headers["Allow"].split(", ")) == {"GET", "POST"}
    assert_problem(await s.call("BREW", "/api/kernels"), 405, "method_not_allowed")
    assert_problem(await s.call("GET", "/api/kernels/%ff"), 404, "not_found")
    session = await s.session()
    assert_problem(await s.call("GET", f"/api/v1/sessions/{session.session_id}/files/%ff.txt"), 400, "bad_request")


@served()
async def test_a_defect_is_a_500_without_its_text(s: Served) -> None:
    session = await s.session()

    def broken() -> None:
        raise RuntimeError("/srv/secret/path")

    session.keep_alive = broken  # type: ignore[method-assign]
    response = await s.call("POST", f"/api/v1/sessions/{session.session_id}/keep-alive", {})
    body = assert_problem(response, 500, "platform_fault")
    assert "secret" not in json.dumps(body)


@served()
async def test_typed_errors_carry_their_extras(s: Served) -> None:
    session = await s.session()
    path = f"/api/v1/sessions/{session.session_id}/executions"
    response = await s.call("POST", path, {"code": "1", "expect_generation": 9})
    assert assert_problem(response, 409, "generation_mismatch")["lost_variables"] == [{"name": "df"}]
    s.gateway.healthy = False
    ready = await s.call("GET", "/readyz", user=None)
    assert ready.code == 503 and js(ready) == {"status": "degraded", "checks": {"engine": "engine_unavailable"}}
    health = await s.call("GET", "/healthz", user=None)
    assert health.code == 200 and js(health)["status"] == "degraded"


@served(json_bytes=1000)
async def test_bytes_that_are_no_http(s: Served) -> None:
    for data in (
        b"\x16\x03\x01 hello\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost a\r\n\r\n",
    ):
        answer = await s.raw(data)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n"), answer
        assert json.loads(body)["code"] == "bad_request"
        assert b"Server:" not in head


@served(json_bytes=1000)
async def test_a_body_over_its_limit(s: Served) -> None:
    body = assert_problem(await s.call("POST", "/api/kernels", b"x" * 1001), 413, "too_large")
    assert body["limit"] == 1000
    chunked = b"POST /api/kernels HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    chunked += b"400\r\n" + b"x" * 1024 + b"\r\n400\r\n" + b"x" * 1024 + b"\r\n0\r\n\r\n"
    answer = await s.raw(chunked)
    assert answer.startswith(b"HTTP/1.1 413 ") and answer.count(b"HTTP/1.1") == 1
    # the answer is not lost though the client sends megabytes before it reads
    large = b"POST /api/kernels HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\nConnection: close\r\n\r\n"
    assert (await s.raw(large + b"x" * 8_000_000)).startswith(b"HTTP/1.1 413 ")
    # and a client that asks first is not told to go on
    asked = b"POST /api/kernels HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\nExpect: 100-continue\r\n\r\n"
    answer = await s.raw(asked)
    assert answer.startswith(b"HTTP/1.1 413 ") and b"100" not in answer.split(b"\r\n")[0]


@served()
async def test_a_refusal_before_the_body_is_not_lost(s: Served) -> None:
    session = await s.session()
    head = f"PUT /api/v1/sessions/{session.session_id}/files/a.csv HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    answer = await s.raw(head.encode() + b"Content-Length: 6000000\r\n\r\n" + b"x" * 6_000_000)
    assert answer.startswith(b"HTTP/1.1 401 ") and b"unauthenticated" in answer


@served()
async def test_every_answer_has_the_security_headers(s: Served) -> None:
    for path in ("/api/kernels", "/api/v1/me", "/", "/static/main.js", "/nowhere", "/healthz"):
        response = await s.call("GET", path)
        for name in ("X-Content-Type-Options", "Referrer-Policy", "X-Frame-Options", "Content-Security-Policy"):
            assert name in response.headers, (path, name)
        assert response.headers["X-Frame-Options"] == "DENY"
        assert response.headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert "Server" not in response.headers
