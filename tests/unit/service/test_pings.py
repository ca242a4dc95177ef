"""Sandboxes are asked whether they are there one after the other, and a mute one is given up."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from gateway.service import monitor
from gateway.service.monitor import Monitor

from .harness import rig, until


async def test_each_is_asked_in_its_turn_and_a_mute_one_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "PING_S", 0.6)
    monkeypatch.setattr(monitor, "PINGS", 1)
    async with rig(tmp_path) as r:
        links = []
        for _ in range(3):
            access = await r.session()
            sandbox = r.gateway.live[access.session_id].sandbox
            assert sandbox is not None
            links.append(sandbox.link)
        loop = asyncio.get_running_loop()
        asked: list[tuple[float, int]] = []
        for n, link in enumerate(links):
            monkeypatch.setattr(link, "ping", lambda n=n, ping=link.ping: (asked.append((loop.time(), n)), ping()))
        task = loop.create_task(Monitor(r.gateway, r.adoption, "i", "o", lambda: None)._pings())
        await until(lambda: len(asked) >= 6)
        assert [n for _, n in asked[:6]] == [0, 1, 2, 0, 1, 2], "each once, then each again"
        assert all(later - sooner > 0.1 for (sooner, _), (later, _) in pairwise(asked)), "not all at once"
        assert all(loop.time() - link.last_heard < 5 for link in links), "they answered"
        mute = links[1]
        monkeypatch.setattr(monitor, "MUTE_S", -1.0)
        await until(lambda: mute.lost is not None)
        assert "mute" in str(mute.lost)
        task.cancel()
