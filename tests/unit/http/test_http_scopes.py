"""Scopes: every route and method, told apart by tokens that were narrowed; on the websocket; through tickets and pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from http_real import real, session
from http_served import assert_problem, js
from tornado.httpclient import HTTPError
from tornado.web import RequestHandler

from gateway import cli
from gateway.auth import AuthSettings, TokenVerifier
from gateway.clock import SystemClock
from gateway.domain.model import Principal
from gateway.domain.scopes import Scope
from gateway.http.app import make_app
from gateway.http.scopes import TABLE, by_handler, methods_of, shape

WORDS = {"user": "mallory", "name": "container", "file": "x", "path": "out/x"}


def test_every_route_of_the_application_is_in_the_table() -> None:
    app = make_app(None, None)  # type: ignore[arg-type]
    rules = app.wildcard_router.rules
    served = {shape(rule.matcher.regex.pattern.removesuffix("$")): methods_of(rule.target) for rule in rules}  # type: ignore[attr-defined]
    assert len(served) == len(rules) > 40
    assert served == {shape(path): set(methods) for path, methods in TABLE.items()}
    named = {scope for methods in TABLE.values() for needed in methods.values() for scope in needed or ()}
    assert named == set(Scope) - {Scope.APPROVE}  # nothing waits for an approval yet


class Odd(RequestHandler):
    def get(self) -> None: ...


@pytest.mark.parametrize("routes", [[("/odd", Odd, {})], [("/healthz", Odd, {})], []])
def test_an_application_that_the_table_does_not_cover_is_not_made(routes: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"scopes\.py"):
        by_handler(routes)


async def test_each_method_asks_for_its_scopes_and_for_no_others(tmp_path: Path) -> None:
    """With a token that lacks one needed scope: 403 that names it. With exactly those: whatever else, not 403 for a scope."""
    async with real(tmp_path) as s:
        session_id = await session(s, s.token("alice"))
        for path, methods in TABLE.items():
            words = WORDS | {"session_id": session_id, "kernel_id": session_id}
            target = path
            for part in ("session_id", "kernel_id", "notebook_id", "execution_id", "artifact_id", *WORDS):
                target = target.replace(f"{{{part}}}", words.get(part, "none"))
            for method, needed in methods.items():
                body = {} if method in ("POST", "PUT", "PATCH") else None
                if needed is None:
                    continue
                if needed == ():
                    answered = await s.call(method, target, s.token("alice", scopes=("approve",)), body)
                    assert answered.code != 403, (method, target, answered.body)
                for missing in needed:
                    others = tuple(str(scope) for scope in Scope if scope != missing)
                    answered = await s.call(method, target, s.token("boss", "t1", "tenant_admin", scopes=others), body)
                    problem = assert_problem(answered, 403, "forbidden")
                    assert problem["scope"] == missing and missing in problem["detail"] and problem["needs"] == list(needed), (method, target)
                if needed and method != "DELETE" and "/events" not in target and "disable" not in target and "/end" not in target:
                    exact = s.token("alice", scopes=tuple(needed))
                    answered = await s.call(method, target, exact, body)
                    assert "scope" not in (js(answered) if answered.code == 403 else {}), (method, target, answered.body)


async def test_a_token_that_may_run_code_does_not_read_what_comes_of_it(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        session_id = await session(s, s.token("alice"))
        path = f"/api/v1/sessions/{session_id}/executions"
        agent = s.token("alice", scopes=("execute",))
        ran = js(await s.call("POST", f"{path}?wait=10", agent, {"code": "print:secret"}))
        assert ran["state"] == "finished" and ran["exit_reason"] == "ok" and "stdout" not in ran and "results" not in ran
        assert "stdout" not in js(await s.call("DELETE", f"{path}/{ran['execution_id']}", agent))
        assert_problem(await s.call("GET", f"{path}/{ran['execution_id']}", agent), 403, "forbidden")
        both = s.token("alice", scopes=("execute", "results:read"))
        assert "stdout" in js(await s.call("POST", f"{path}?wait=10", both, {"code": "print:secret"}))
        assert "stdout" in js(await s.call("GET", f"{path}/{ran['execution_id']}", s.token("alice", scopes=("results:read",))))


async def test_the_websocket_needs_both_of_its_scopes(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        session_id = await session(s, s.token("alice"))
        for scopes, missing in ((("execute",), "results:read"), (("results:read",), "execute"), (("none",), "execute")):
            with pytest.raises(HTTPError) as caught:
                await s.ws(session_id, s.token("alice", scopes=scopes))
            assert caught.value.code == 403 and caught.value.response is not None
            assert json.loads(caught.value.response.body)["scope"] == missing
        ws = await s.ws(session_id, s.token("alice", scopes=("execute", "results:read")))
        assert ws.close_code is None


async def test_an_admins_token_without_the_scope_admin_is_no_admins(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        session_id = await session(s, s.token("alice"))
        agent = s.token("boss", "t1", "admin", scopes=("sessions:write", "files:write", "files:read"))
        assert_problem(await s.call("GET", "/api/v1/sessions?all=1", agent), 403, "forbidden")
        assert_problem(await s.call("GET", f"/api/v1/admin/sessions/{session_id}", agent), 403, "forbidden")
        assert_problem(await s.call("GET", "/metrics", agent), 403, "forbidden")
        whole = s.token("boss", "t1", "admin", scopes=("admin",))
        assert len(js(await s.call("GET", "/api/v1/sessions?all=1", whole))["sessions"]) == 1
        assert (await s.call("GET", f"/api/v1/admin/sessions/{session_id}", whole)).code == 200


async def test_tickets_and_pages_keep_the_scopes_of_their_maker(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        session_id = await session(s, s.token("alice"))
        made = js(await s.call("POST", "/api/v1/tickets", s.token("alice", scopes=("execute",)), {"purpose": "login"}))
        came = await s.call("GET", f"/login?ticket={made['ticket']}")
        cookie = came.headers["Set-Cookie"].split("=", 1)[1].split(";", 1)[0]
        assert js(await s.call("GET", "/api/v1/me", cookie=cookie))["scopes"] == ["execute"]
        problem = assert_problem(await s.call("GET", f"/api/v1/sessions/{session_id}/transcript", cookie=cookie), 403, "forbidden")
        assert problem["scope"] == "results:read"
        assert (await s.call("POST", f"/api/v1/sessions/{session_id}/interrupt", body={}, cookie=cookie)).code == 204
        again = js(await s.call("POST", "/api/v1/tickets", body={"purpose": "login"}, cookie=cookie))
        principal = s.pages.redeem(again["ticket"], "login")[1]
        assert principal.scopes == {"execute"}  # nor does a page lead to more
        assert js(await s.call("GET", "/api/v1/me", s.token("alice")))["scopes"] is None


def test_the_command_line_makes_narrow_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SANDGLASS_STATE", str(tmp_path))

    def made(*more: str) -> Principal:
        assert cli.main(["token", "--user", "alice", *more]) == 0
        verifier = TokenVerifier.from_settings(AuthSettings(state=tmp_path), SystemClock())
        return verifier.verify(capsys.readouterr().out.strip())

    assert made("--scope", "execute", "--scope", "files:read").scopes == {"execute", "files:read"}
    assert made().scopes == frozenset() and made().permits(Scope.ADMIN)
    with pytest.raises(SystemExit):
        cli.main(["token", "--user", "alice", "--scope", "everything"])
    assert "sessions:write" in capsys.readouterr().err
