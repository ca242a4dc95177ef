"""Credentials that went through everything that can fail are nowhere afterwards: no log line, no answer, no record, no file."""

from __future__ import annotations

import io
import logging
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from http_real import Real, real, session
from http_served import js

from gateway.errors import StoreUnavailable
from gateway.logs import JsonFormatter, TextFormatter


async def everything(s: Real, answers: list[bytes]) -> dict[str, str]:
    """Use credentials of every kind, rightly and wrongly; the secret parts of each."""

    async def call(method: str, path: str, token: str = "", body: Any = None, **more: Any) -> Any:
        answer = await s.call(method, path, token, body, **more)
        answers.append(str(sorted(answer.headers.get_all())).encode() + answer.body)
        return answer

    alice, boss = s.token("alice"), s.token("boss", "t1", "tenant_admin")
    mine = await session(s, alice)
    path = f"/api/v1/sessions/{mine}"
    await call("POST", f"{path}/executions?wait=10", alice, {"code": "write:out/a.txt:hello"})
    await s.rig.stored(1)
    (artifact,) = (a["artifact_id"] for a in js(await call("GET", f"{path}/artifacts", alice))["artifacts"])
    # these two answers are the ones that hand a secret out
    ticket = js(await s.call("POST", "/api/v1/tickets", alice, {"purpose": "login"}))["ticket"]
    link = urlsplit(js(await s.call("POST", f"/api/v1/artifacts/{artifact}/link", alice, {}))["url"])
    first = await s.call("GET", f"/login?ticket={ticket}")
    cookie = first.headers["Set-Cookie"].split(";")[0].partition("=")[2]
    tampered = alice[:-6] + "AAAAAA"
    for token in (alice, tampered, alice + ".x", alice[10:]):
        for where in ("/api/kernels", "/nowhere", f"/api/kernels/{mine}/channels", "/login", f"{path}/files/none"):
            await call("GET", f"{where}?token={token}&a={token[:5]}")
            await call("GET", where, token)
            await call("GET", where, more={"Cookie": f"sandglass_page={token}"})
        for body in ({token: 1}, {"code": 1}, {"cells": [token]}, [token]):
            await call("POST", f"{path}/executions", token, body)
    await call("GET", f"/login?ticket={ticket}")
    await call("GET", f"{link.path}?{link.query}x", alice)
    await call("GET", f"{link.path}?{link.query}", s.token("bob"))
    await call("GET", "/api/v1/me", cookie=cookie)
    await call("POST", "/api/v1/sessions", cookie=cookie, body={"profile": "none"}, more={"Origin": "http://evil.example"})
    # defects and failures whose own text holds the credential
    live = s.rig.gateway.live[mine]
    for error in (RuntimeError(f"token={alice} cookie: {cookie}"), StoreUnavailable(), ValueError(f"https://u:{ticket}@store/{link.query}")):
        live.keeper.plan = _raises(error)  # type: ignore[method-assign]
        await call("GET", f"{path}/files", alice)
    await call("POST", "/logout", cookie=cookie)
    await call("POST", "/api/v1/admin/users/alice/disable", boss, {"reason_text": "left"})
    await call("GET", "/api/v1/me", alice)
    return {
        "token": alice.rpartition(".")[2], "admin": boss.rpartition(".")[2], "tampered": tampered.rpartition(".")[2][:30], "ticket": ticket,
        "cookie": cookie.rpartition(".")[2], "link": link.query.rpartition(".")[2],
    }  # fmt: skip


def _raises(error: Exception) -> Any:
    async def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


async def test_credentials_are_nowhere(tmp_path: Path) -> None:
    answers: list[bytes] = []
    out = [io.StringIO(), io.StringIO()]
    handlers = [logging.StreamHandler(stream) for stream in out]
    for handler, formatter in zip(handlers, (JsonFormatter(), TextFormatter()), strict=True):
        handler.setFormatter(formatter)
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.DEBUG)
    for handler in handlers:
        root.addHandler(handler)
    try:
        async with real(tmp_path) as s:
            secrets = await everything(s, answers)
            records = [p for p in tmp_path.rglob("*") if p.is_file()]
            kept = {str(p.relative_to(tmp_path)): p.read_bytes() for p in records}
    finally:
        root.setLevel(level)
        for handler in handlers:
            root.removeHandler(handler)
    assert len(answers) > 60 and any("records" in name for name in kept) and any("journals" in name for name in kept)
    assert "a request failed" in out[0].getvalue() and "RuntimeError" in out[0].getvalue(), "the defects were logged at all"
    for kind, secret in secrets.items():
        assert len(secret) > 20
        for stream in out:
            assert secret not in stream.getvalue(), kind
        assert not [a[:200] for a in answers if secret.encode() in a], kind
        assert not [name for name, data in kept.items() if secret.encode() in data], kind
