"""Retention on the whole service: what goes, what stays, kills in between, a store that is down, clocks that are set."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.backends.filesystem_store import FilesystemStore
from gateway.clock import SystemClock
from gateway.domain.model import Artifact, Principal
from gateway.domain.retention import DAY_S, Retention
from gateway.domain.trust import HOLDS_S
from gateway.errors import NotFound, StoreUnavailable
from gateway.ports import AuditRow, SessionRow
from gateway.service import sweeper
from gateway.service.access import Access
from gateway.service.storing import artifact_key
from gateway.service.sweeper import CLOCK, Sweeper

from .harness import ALICE, MALLORY, Rig, rig, until

ADMIN = Principal("boss", "t1", frozenset({"tenant_admin"}))


class Shifted(SystemClock):
    """Later (or, for people only, at another time) than it is."""

    def __init__(self, wall_s: float, boot_s: float | None = None) -> None:
        self.wall_s, self.boot_s = wall_s, wall_s if boot_s is None else boot_s

    def now(self) -> float:
        return super().now() + self.wall_s

    def boottime(self) -> float:
        return super().boottime() + self.boot_s


async def sweep(r: Rig, days: float = 0.0, keep: Retention | None = None, *, clock: SystemClock | None = None) -> bool:
    """One look, so many days later."""
    world = r.gateway.world
    if await r.records.get_note(CLOCK) is None:
        await Sweeper(r.gateway).sweep()  # as at a gateway's start
    world.clock = clock or Shifted(days * DAY_S)
    world.retention = keep or Retention()
    try:
        return await Sweeper(r.gateway).sweep()
    finally:
        world.clock = r.clock


async def kept(r: Rig, access: Access, *names: str) -> None:
    """Files of a session, stored; then the session is dormant."""
    for name in names:
        await r.run(access, f"write:out/{name}:{name}")
    access.recycle()
    await until(lambda: access.to_json()["state"] == "dormant")


async def ended(r: Rig, *names: str) -> Access:
    access = await r.session()
    await kept(r, access, *names)
    access.end()
    await until(lambda: access.session_id not in r.gateway.live)
    return access


async def tags(r: Rig) -> list[str]:
    return [row.tag for row in reversed(await r.records.list_audit()) if row.tag.startswith(("retention", "user:artifact", "admin:artifact"))]


async def test_the_files_of_an_ended_session_go_with_their_objects(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access, living = await ended(r, "a.txt", "b.txt"), await r.session()
        await kept(r, living, "c.txt")
        assert len(r.store.objects) == 3
        assert await sweep(r, 29)
        assert len(r.store.objects) == 3 and "retention:artifact:delete" not in await tags(r)
        assert await sweep(r, 31)
        assert len(r.store.objects) == 1
        assert await r.records.list_artifacts(access.session_id, latest_only=False) == []
        assert [f["path"] for f in (await living.list_files())["files"]] == ["out/c.txt"]
        [row] = [row for row in await r.records.list_audit() if row.tag == "retention:artifact:delete"]
        assert (row.tenant, row.user, row.session_id) == ("t1", "alice", access.session_id)
        assert row.detail["count"] == 2 == len(row.detail["ids"]) and row.detail["why"] == ["session_ended"] and row.detail["bytes"] == 10
        assert await sweep(r, 31)
        assert len([t for t in await tags(r) if t == "retention:artifact:delete"]) == 1


async def test_older_versions_go_the_newest_stays_for_years(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        for n in range(4):
            await r.run(access, f"write:out/a.txt:v{n}")
            access.recycle()
            await until(lambda: access.to_json()["state"] == "dormant")
        assert len(r.store.objects) == 4
        assert await sweep(r, 0, Retention(versions=2))
        assert sorted(r.store.objects.values()) == [b"v1", b"v2", b"v3"]
        assert await sweep(r, 8)
        assert list(r.store.objects.values()) == [b"v3"]
        assert await sweep(r, 4000)
        result = await r.run(access, "read:out/a.txt")
        assert "out/a.txt" in result["stderr"]


async def test_journals_and_rows_of_what_is_over(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access, living = await ended(r), await r.session()
        await r.run(living, "print:x")
        journals = {p.name for p in (tmp_path / "journals").iterdir()}
        assert journals == {access.session_id, living.session_id}
        (tmp_path / "journals" / "stray").mkdir()
        assert await sweep(r, 1)
        assert len(list((tmp_path / "journals").iterdir())) == 3
        assert await sweep(r, 1.2)
        assert {p.name for p in (tmp_path / "journals").iterdir()} == {living.session_id}
        assert len(await living.list_executions()) == 1
        assert await sweep(r, 91)
        assert await living.list_executions() == []
        assert await r.records.get_session(access.session_id) is not None
        assert await sweep(r, 181)
        assert await r.records.get_session(access.session_id) is None
        with pytest.raises(NotFound):
            await r.gateway.session(ALICE, access.session_id, ended=True)
        assert [row.tag for row in await r.records.list_audit() if "session:create" in row.tag] == []
        assert (await tags(r))[-1] == "retention:audit:delete"
        result = await r.run(living, "print:still")
        assert result["exit_reason"] == "ok"


async def test_the_store_is_down_and_nothing_is_forgotten(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await ended(r, "a.txt")
        [artifact] = await r.records.list_artifacts(access.session_id)
        r.store.failing = StoreUnavailable("down")
        assert not await sweep(r, 31)
        assert len(await r.records.doomed_artifacts(0, 9)) == 1, "the row stays"
        assert await r.records.get_artifact(artifact.artifact_id) is None, "nobody finds it"
        assert not await sweep(r, 31)
        r.store.failing = None
        assert await sweep(r, 31)
        assert not r.store.objects and await r.records.doomed_artifacts(0, 9) == []
        assert (await tags(r)).count("retention:artifact:delete") == 1


async def test_a_store_that_says_yes_and_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig(tmp_path) as r:
        await ended(r, "a.txt")

        async def nothing(key: str) -> None:
            pass

        with monkeypatch.context() as lying:
            lying.setattr(r.store, "delete", nothing)
            assert not await sweep(r, 31)
            assert len(await r.records.doomed_artifacts(0, 9)) == 1
        assert await sweep(r, 31)
        assert not r.store.objects and await r.records.doomed_artifacts(0, 9) == []


@pytest.mark.parametrize("steps", range(1, 12))
async def test_killed_in_the_middle(tmp_path: Path, steps: int) -> None:
    """The gateway dies at the ``steps``-th thing that a look asks of records and store; the next look does the rest."""
    async with rig(tmp_path) as r:
        access, living = await ended(r, "a.txt", "b.txt"), await r.session()
        await kept(r, living, "c.txt")
        left = steps

        def dying(owner: Any, name: str) -> None:
            real = getattr(owner, name)

            async def call(*args: Any) -> Any:
                nonlocal left
                left -= 1
                if left == 0:
                    raise asyncio.CancelledError
                result = await real(*args)
                if left == 1 and name in ("doom_artifacts", "delete", "forget_artifact"):
                    raise asyncio.CancelledError
                return result

            setattr(owner, name, call)

        for name in ("doom_artifacts", "forget_artifact", "doomed_artifacts", "stored_paths", "purge", "add_audit"):
            dying(r.records, name)
        dying(r.store, "delete")
        try:
            await sweep(r, 31)
        except asyncio.CancelledError:
            pass
        del r.store.delete
        await r.kill()
        await r.boot()
        assert await sweep(r, 31)
        assert list(r.store.objects.values()) == [b"c.txt"]
        assert await r.records.doomed_artifacts(0, 9) == []
        assert await r.records.list_artifacts(access.session_id, latest_only=False) == []
        said = [row.detail["count"] for row in await r.records.list_audit() if row.tag == "retention:artifact:delete"]
        assert said == [2], "recorded once"


async def test_an_artifact_is_deleted_at_once(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        await r.run(access, "write:out/a.txt:one\nwrite:out/b.txt:two")
        await r.stored(2)
        a, b = await access.artifacts()
        for stranger in (MALLORY, Principal("bob", "t1"), Principal("boss", "t2", frozenset({"tenant_admin"}))):
            with pytest.raises(NotFound):
                await r.gateway.delete_artifact(stranger, a["artifact_id"])
        r.store.failing = StoreUnavailable("down")
        await r.gateway.delete_artifact(ALICE, a["artifact_id"])
        await r.gateway.delete_artifact(ADMIN, b["artifact_id"])
        for who in (ALICE, ADMIN):
            with pytest.raises(NotFound):
                await r.gateway.delete_artifact(who, a["artifact_id"])
        with pytest.raises(NotFound):
            await r.gateway.artifact(ALICE, a["artifact_id"])
        assert await access.artifacts() == [] and (await access.list_files())["files"] == []
        assert len(r.store.objects) == 2, "the store is down"
        r.store.failing = None
        access.recycle()
        await until(lambda: access.to_json()["state"] == "dormant")
        assert await sweep(r)
        assert not r.store.objects, "it did not come back from the sandbox either"
        assert await tags(r) == ["user:artifact:delete", "admin:artifact:delete"]
        [row] = [each for each in await r.records.list_audit() if each.tag == "admin:artifact:delete"]
        assert row.detail["by"] == "boss" and row.user == "alice" and row.detail["ids"] == [b["artifact_id"]]


async def test_what_somebody_deleted_goes_whatever_the_clock_says(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        await kept(r, access, "a.txt", "b.txt")
        [a, b] = await access.artifacts()
        r.store.failing = StoreUnavailable("down")
        await r.gateway.delete_artifact(ALICE, a["artifact_id"])
        await until(lambda: r.store.errors)
        r.store.failing = None
        assert not await sweep(r, clock=Shifted(900 * DAY_S, 0.0))
        assert [key.rpartition("/")[2] for key in r.store.objects] == [b["artifact_id"]]


async def test_an_older_version_alone_may_be_deleted(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        for n in range(2):
            await kept(r, access, "a.txt") if n == 0 else await r.run(access, "write:out/a.txt:new")
        await until(lambda: len(r.store.objects) == 2)
        older, newer = await r.records.list_artifacts(access.session_id, latest_only=False)
        await r.gateway.delete_artifact(ALICE, older.artifact_id)
        await until(lambda: len(r.store.objects) == 1)
        assert [x["artifact_id"] for x in await access.artifacts()] == [newer.artifact_id]


async def test_objects_without_a_row(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        await kept(r, access, "a.txt")
        writer = await r.store.writer("artifacts/t/u/stray")
        await writer.write(b"x")
        await writer.commit()
        other = await r.store.writer("elsewhere/x")
        await other.commit()
        assert await sweep(r, 0)
        assert await sweep(r, 1)
        assert len(r.store.objects) == 3, "first seen a day ago, not yet a day and the margin"
        await r.kill()
        await r.boot()
        assert await sweep(r, 1.2)
        assert "artifacts/t/u/stray" not in r.store.objects and len(r.store.objects) == 2
        assert await tags(r) == ["retention:object:delete"]


async def test_a_directory_as_the_store(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.kill()
        disk = FilesystemStore(tmp_path / "store", min_free=0)
        await disk.open()
        r.store = disk  # type: ignore[assignment]
        await r.boot()
        await ended(r, "a.txt", "b.txt")
        living = await r.session()
        await kept(r, living, "c.txt")
        writer = await disk.writer("artifacts/t/u/stray")
        await writer.commit()
        assert await sweep(r)
        assert len([key async for key in disk.list("")]) == 4
        assert await sweep(r, 31)
        [key] = [key async for key in disk.list("")]
        assert key.endswith((await living.artifacts())[0]["artifact_id"])
        assert len([p for p in (tmp_path / "store" / "objects").rglob("*") if p.is_file()]) == 1
        await disk.close()


async def test_a_defect_is_not_the_end_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig(tmp_path) as r:
        await ended(r, "a.txt")
        looks = 0

        async def sweep_or_fail(self: Sweeper) -> bool:
            nonlocal looks
            looks += 1
            if looks == 1:
                raise RuntimeError("a defect")
            return True

        monkeypatch.setattr(Sweeper, "sweep", sweep_or_fail)
        monkeypatch.setattr(sweeper, "AGAIN_S", 0.01)
        task = r.tasks.spawn(Sweeper(r.gateway).run(), "retention")
        await until(lambda: looks == 2)
        assert not task.done()
        task.cancel()


async def test_another_installations_records_empty_no_store(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        for n in range(30):
            r.store.objects[f"artifacts/t/u/{n}"] = b"x"
        for days in (0, 2, 4):
            assert not await sweep(r, days)
        assert len(r.store.objects) == 30


async def test_clock_steps(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await ended(r, "a.txt")
        assert await sweep(r)
        assert await sweep(r, clock=Shifted(-3600.0, 0.0)), "an hour back"
        years = 3 * 365 * DAY_S
        for _ in range(3):
            assert not await sweep(r, clock=Shifted(years, 0.0))
        assert r.store.objects and await tags(r) == []
        await r.kill()
        await r.boot()
        assert not await sweep(r, clock=Shifted(years, 3600.0)), "another gateway remembers"
        assert r.store.objects
        assert await sweep(r, clock=Shifted(7200.0)), "set right again"
        assert r.store.objects
        for hours in range(1, int(HOLDS_S / 3600) + 2):
            believed = await sweep(r, clock=Shifted(years + hours * 3600.0, 7200.0 + hours * 3600.0))
        assert believed and not r.store.objects, "it stood by it for three days"


CHILD = """
import asyncio, sys
from pathlib import Path
from gateway.backends.filesystem_store import FilesystemStore
from gateway.clock import SystemClock
from gateway.service.sweeper import Sweeper
from tests.unit.service.harness import rig

class Telling(FilesystemStore):
    async def delete(self, key):
        await super().delete(key)
        print(key, flush=True)

async def main():
    path = Path(sys.argv[1])
    async with rig(path) as r:
        r.gateway.world.store = Telling(path / "store", min_free=0)
        await Sweeper(r.gateway).sweep()

asyncio.run(main())
"""


async def test_kill_9_in_the_middle_of_a_look(tmp_path: Path) -> None:
    """A real process is killed while it deletes; the next one finishes, nothing is half there, each is recorded once."""
    async with rig(tmp_path) as r:
        store = FilesystemStore(tmp_path / "store", min_free=0)
        await store.open()
        now, ids = r.clock.now(), [f"{n:032x}" for n in range(200)]
        for session_id, state, over in (("gone", "ended", now - 40 * DAY_S), ("lives", "dormant", None)):
            row = SessionRow(session_id, "t1", "alice", "n", "container", state, 1, now - 50 * DAY_S, now - 40 * DAY_S, ended_at=over, version=1)
            await r.records.put_session(row)
        for n, artifact_id in enumerate(ids):
            artifact = Artifact(artifact_id, "gone" if n else "lives", "t1", "alice", f"out/{n}", "d" * 64, 1, "text/plain", 1, now - 45 * DAY_S)
            writer = await store.writer(artifact_key(artifact))
            await writer.commit()
            await r.records.add_artifact(artifact)
        await r.records.add_audit(AuditRow(now, "user:session:create", "t1", "alice"))
    root = str(Path(__file__).parents[3])
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", CHILD, str(tmp_path), stdout=asyncio.subprocess.PIPE, cwd=root)
    assert child.stdout is not None
    for _ in range(60):
        assert await asyncio.wait_for(child.stdout.readline(), 30.0)
    child.send_signal(signal.SIGKILL)
    await child.wait()
    async with rig(tmp_path) as r:
        r.gateway.world.store = store
        left = len([key async for key in store.list("")])
        assert 1 < left <= 140, "it was killed in the middle"
        assert await sweep(r)
        assert [key.rpartition("/")[2] async for key in store.list("")] == ids[:1]
        assert [a.artifact_id for a in await r.records.list_artifacts("lives")] == ids[:1]
        assert await r.records.doomed_artifacts(0, 9) == [] and await r.records.list_artifacts("gone", latest_only=False) == []
        said = [i for row in await r.records.list_audit() if row.tag == "retention:artifact:delete" for i in row.detail["ids"]]
        assert sorted(said) == ids[1:]
    await store.close()
