"""Pictures encoded anew in a disposable sandbox; the scripted kernel plays the encoder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.domain.model import SandboxState
from gateway.errors import ArtifactRejected, NotFound
from gateway.service.access import Access
from gateway.service.pictures import Pictures

from .harness import ALICE, Rig, chunks, rig, until

GIF = b"GIF89a\1\0\1\0" + bytes(9000) + b"<script>"
CLEAN = b"GIF89a, clean\x01"
ENCODER = "write:picture:" + CLEAN.decode("latin-1")


async def body(stream: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in stream])


async def with_picture(r: Rig) -> tuple[Access, str]:
    """A session that keeps one picture, and the artifact's id."""
    world = r.gateway.world
    world.pictures = Pictures(world, anew=True)
    world.disposables.profile = "container"
    access = await r.session()
    made = await access.write_file("in/a.gif", len(GIF), chunks(GIF), overwrite=False)
    return access, made["artifact_id"]


async def download(r: Rig, artifact_id: str) -> tuple[int, bytes]:
    found, stream = await r.gateway.artifact(ALICE, artifact_id)
    return found["size"], await body(stream)


async def only_the_sessions_own(r: Rig) -> None:
    """Every sandbox that was used for a picture is destroyed, and counted as gone."""
    work = r.gateway.world.disposables
    await until(lambda: len(r.runtime.sandboxes) == 1 and work.count == 0 and not work._ends)
    rows = await r.records.list_sandboxes(live_only=False)
    assert sorted(row.state for row in rows if not row.session_id) == [SandboxState.GONE] * (len(rows) - 1)


async def test_a_picture_is_encoded_once_and_goes_with_its_original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.service.pictures.CODE", ENCODER)
    monkeypatch.setattr("gateway.service.disposable.KEEP_S", 1.0)
    async with rig(tmp_path) as r:
        access, artifact_id = await with_picture(r)
        both = await asyncio.gather(download(r, artifact_id), download(r, artifact_id))
        assert both == [(len(CLEAN), CLEAN)] * 2
        assert r.gateway.world.pool.claims == 2, "one for the session, one for both downloads"
        assert await body(access.read_file("in/a.gif")) == CLEAN, "from the sandbox, too"
        assert r.gateway.world.pool.claims == 2, "the same one, for it is the same user's"
        (used,) = (s for s in r.runtime.sandboxes.values() if "a.gif" not in s.files.roots["in"])
        assert not used.files.roots["in"] and not used.files.roots["workspace"], "and nothing of a file stays in it"
        await only_the_sessions_own(r)
        assert await download(r, artifact_id) == (len(CLEAN), CLEAN)
        assert r.gateway.world.pool.claims == 2
        assert sorted(key.split("/")[0] for key in [k async for k in r.store.list("")]) == ["artifacts", "derived"]
        access.recycle()
        await until(lambda: access.to_json()["state"] == "dormant")
        assert await body(access.read_file("in/a.gif")) == CLEAN
        await r.run(access, "1")
        (sandbox,) = r.runtime.sandboxes.values()
        assert sandbox.files.roots["in"]["a.gif"][0] == GIF, "a restore brings the original"
        await r.gateway.delete_artifact(ALICE, artifact_id)
        await until(lambda: not r.store.objects)


@pytest.mark.parametrize("encoder", ["error:ValueError", "die:11", "1", "write:picture:text", "hang"])
async def test_what_cannot_be_encoded_is_not_handed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder: str) -> None:
    monkeypatch.setattr("gateway.service.pictures.CODE", encoder)
    monkeypatch.setattr("gateway.service.pictures.WITHIN_S", 1.0)
    async with rig(tmp_path) as r:
        access, artifact_id = await with_picture(r)
        for get in (download(r, artifact_id), body(access.read_file("in/a.gif"))):
            with pytest.raises(ArtifactRejected) as caught:
                await get
            assert caught.value.extra["rule"] == "picture_unreadable"
        await only_the_sessions_own(r)
        assert [key.split("/")[0] for key in [k async for k in r.store.list("")]] == ["artifacts"]


async def test_limits_and_deletion_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.service.pictures.CODE", f"sleep:0.3\n{ENCODER}")
    async with rig(tmp_path) as r:
        access, artifact_id = await with_picture(r)
        task = asyncio.get_running_loop().create_task(download(r, artifact_id))
        await until(lambda: r.gateway.world.pool.claims == 2)
        await r.gateway.delete_artifact(ALICE, artifact_id)
        with pytest.raises(NotFound):
            await task
        await until(lambda: not r.store.objects)
        other = (await access.write_file("in/b.gif", len(GIF), chunks(GIF), overwrite=False))["artifact_id"]
        monkeypatch.setattr("gateway.service.pictures.MOST_BYTES", 1000)
        with pytest.raises(ArtifactRejected):
            await download(r, other)
        monkeypatch.undo()
        monkeypatch.setattr("gateway.service.pictures.CODE", ENCODER)
        await r.gateway.world.disposables.close()
        r.gateway.world.disposables._closed = False
        monkeypatch.setattr(r.gateway.world.pool, "_max_live", 1)
        assert await download(r, other) == (len(CLEAN), CLEAN), "sessions that have all of theirs do not keep it from this"
        assert r.gateway.world.pool.live == 1


async def test_a_kill_in_the_middle_leaves_no_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.service.pictures.CODE", "sleep:30")
    async with rig(tmp_path) as r:
        _, artifact_id = await with_picture(r)
        task = asyncio.get_running_loop().create_task(download(r, artifact_id))
        await until(lambda: len(r.runtime.sandboxes) == 2)
        await asyncio.sleep(0.1)
        await r.kill()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await r.boot()
        await until(lambda: len(r.runtime.sandboxes) == 1)
