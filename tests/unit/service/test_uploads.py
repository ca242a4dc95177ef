"""Uploads and artifacts: what is let in, what is recorded of it, and what a store that fails changes about that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.domain.model import Artifact
from gateway.errors import ArtifactRejected, Conflict, StoreUnavailable
from gateway.service.access import Access

from .harness import ALICE, Rig, chunks, rig, sha256, until

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(20_000)


async def stored(r: Rig, access: Access) -> list[Artifact]:
    return await r.records.list_artifacts(access.session_id, latest_only=False)


async def test_an_upload_is_an_artifact_when_it_is_answered(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        answer = await access.write_file("sales.csv", 8, chunks(b"a,b\n1,2\n"), overwrite=False)
        (artifact,) = await stored(r, access)
        assert answer == {
            "path": "in/sales.csv", "size": 8, "sha256": sha256(b"a,b\n1,2\n"), "mime": "text/csv", "artifact_id": artifact.artifact_id,
        }  # fmt: skip
        assert (artifact.tenant, artifact.user, artifact.path, artifact.sha256) == ("t1", "alice", "in/sales.csv", answer["sha256"])
        assert (artifact.size, artifact.mime, artifact.generation, artifact.verdict) == (8, "text/csv", 1, "ok")
        _, body = await r.gateway.artifact(ALICE, artifact.artifact_id)
        assert b"".join([c async for c in body]) == b"a,b\n1,2\n"
        assert (await r.run(access, "1"))["exit_reason"] == "ok"
        assert list(r.gateway.live[access.session_id].keeper.inputs) == ["in/sales.csv"]


async def test_a_stored_upload_is_not_read_back(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        data = b"x" * 3_000_000
        await access.write_file("big.bin", len(data), chunks(data), overwrite=False)
        await r.gateway.live[access.session_id].effects.checkpoint("")
        assert [s.files.sent_bytes for s in r.runtime.sandboxes.values()] == [0]
        assert len(await stored(r, access)) == 1


async def test_content_that_is_not_what_its_name_says_leaves_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        cut = 0

        async def slowly() -> AsyncIterator[bytes]:
            nonlocal cut
            for at in range(0, len(PNG), 1000):
                cut = at
                yield PNG[at : at + 1000]

        with pytest.raises(ArtifactRejected) as caught:
            await access.write_file("table.csv", len(PNG), slowly(), overwrite=False)
        assert caught.value.extra == {"rule": "type_mismatch", "path": "in/table.csv", "mime": "image/png"}
        assert cut < 5000, "the rest was taken in first"
        with pytest.raises(ArtifactRejected):
            await access.write_file("short.png", 3, chunks(b"a,b"), overwrite=False)
        assert (await access.list_files())["files"] == []
        assert await stored(r, access) == []
        assert [key async for key in r.store.list("")] == []
        answer = await access.write_file("table.png", len(PNG), chunks(PNG), overwrite=False)
        assert answer["mime"] == "image/png"


async def test_a_file_made_by_code_is_stored_whatever_its_name_says_and_marked(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        await r.run(access, "write:out/plot.png:not a picture")
        await r.run(access, "write:out/table.csv:a,b")
        await r.gateway.live[access.session_id].effects.checkpoint("")
        found = {a["path"]: (a["mime"], a["verdict"]) for a in await access.artifacts()}
        assert found == {"out/plot.png": ("text/plain", "type_mismatch"), "out/table.csv": ("text/csv", "ok")}
        access.recycle()
        await until(lambda: access.to_json()["state"] == "dormant")
        await r.run(access, "1")
        assert {f["path"] for f in access.to_json()["restored_files"]} == set(found)


async def test_a_store_that_fails_delays_the_artifact_and_not_the_upload(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        for moment in ("begin", "middle"):
            path = f"in/{moment}.csv"

            async def body(breaks: bool = moment == "middle") -> AsyncIterator[bytes]:
                yield b"a,b\n"
                if breaks:
                    r.store.failing = StoreUnavailable("down")
                yield b"1,2\n"

            if moment == "begin":
                r.store.failing = StoreUnavailable("down")
            answer = await access.write_file(path, 8, body(), overwrite=False)
            assert answer["artifact_id"] is None and answer["sha256"] == sha256(b"a,b\n1,2\n")
            r.store.failing = None
        await r.gateway.live[access.session_id].effects.checkpoint("")
        assert sorted(a.path for a in await stored(r, access)) == ["in/begin.csv", "in/middle.csv"]
        assert all(a.sha256 == sha256(b"a,b\n1,2\n") for a in await stored(r, access))


async def test_versions_and_what_exists(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        first = await access.write_file("a.csv", 1, chunks(b"1"), overwrite=False)
        with pytest.raises(Conflict):
            await access.write_file("a.csv", 1, chunks(b"2"), overwrite=False)
        again = await access.write_file("a.csv", 1, chunks(b"1"), overwrite=True)
        assert again["artifact_id"] == first["artifact_id"], "the same bytes are the same version"
        other = await access.write_file("a.csv", 1, chunks(b"2"), overwrite=True)
        assert [a.artifact_id for a in await stored(r, access)] == [first["artifact_id"], other["artifact_id"]]
        await asyncio.sleep(0)
        assert len([key async for key in r.store.list("")]) == 2


async def test_an_upload_outside_counts_as_declared_until_its_user_says_otherwise(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        assert (await access.write_file("work/a.csv", 1, chunks(b"1"), overwrite=False))["artifact_id"]
        assert [(d["pattern"], d["keep"], d["source"]) for d in await access.declarations()] == [("work/a.csv", True, "upload")]
        with pytest.raises(ArtifactRejected):
            await access.write_file("work/b.csv", len(PNG), chunks(PNG), overwrite=False)
        assert len(await access.declarations()) == 1, "what was refused declares nothing"
        await access.declare("private/**", False, "rest")
        await access.declare("in/secret.csv", False, "rest")
        for path in ("private/a.csv", "in/secret.csv"):
            assert (await access.write_file(path, 1, chunks(b"1"), overwrite=False))["artifact_id"] is None
        await r.gateway.live[access.session_id].effects.checkpoint("")
        assert [a.path for a in await stored(r, access)] == ["work/a.csv"]
