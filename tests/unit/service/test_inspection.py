"""Archives let in and out: the process that looks into them, uploads, verdicts on what code made, what may be downloaded."""

from __future__ import annotations

import asyncio
import gzip
import lzma
import os
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.archives import ArchiveLimits, Report
from gateway.domain.inspection import Downloads, Rule, held_back
from gateway.errors import ArtifactRejected, NotFound, StoreUnavailable, Unavailable
from gateway.service.access import Access
from gateway.service.archive_worker import ArchiveChecks
from gateway.service.inspection import InspectionRules, Inspector

from .harness import ALICE, Rig, chunks, rig, sha256, until

sys.path.insert(0, str(Path(__file__).parents[1]))

from archive_fixture import gz_bomb, nested, overlapping, tarred, zipped

MIB = 1024**2
OWNER = ("t1", "alice")
GOOD = zipped(("a.csv", b"a,b\n" * 1000), ("b/c.txt", b"hello"))
BAD = zipped(("../../home/alice/.profile", b"x"))
ELF = b"\x7fELF\2\1\1" + bytes(9000)


async def body(stream: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in stream])


def make(r: Rig, path: str, data: bytes) -> None:
    """As the user's code would."""
    (sandbox,) = r.runtime.sandboxes.values()
    assert sandbox.files.write("workspace", path, data)


async def checkpoint(r: Rig, access: Access) -> dict[str, tuple[str, str]]:
    """Path -> type and verdict, once all were looked into."""
    await r.gateway.live[access.session_id].effects.checkpoint("")
    found: dict[str, tuple[str, str]] = {}
    async with asyncio.timeout(20):
        while not found or any(not verdict for _, verdict in found.values()):
            await asyncio.sleep(0.01)
            found = {a.path: (a.mime, a.verdict) for a in await r.records.list_artifacts(access.session_id)}
    return found


def rules(r: Rig, downloads: Downloads) -> None:
    world = r.gateway.world
    world.inspector = Inspector(world.records, world.store, world.tasks, r.path / "scratch", InspectionRules(downloads=downloads))


# --- the process --------------------------------------------------------------------------------------------------------


async def looked(checks: ArchiveChecks, data: bytes) -> Report:
    with checks.scratch_file() as file:
        file.write(data)
        report = await checks.check(file, OWNER)
        file.seek(0)
        assert file.read() == data, "the file is the same afterwards"
        return report


async def test_the_process_says_what_the_check_finds(tmp_path: Path) -> None:
    checks = ArchiveChecks(ArchiveLimits(), tmp_path / "scratch")
    assert await looked(checks, GOOD) == Report(None, "", 2, 4005)
    assert await looked(checks, BAD) == Report(Rule.PATH, "../../home/alice/.profile", 1, 0)
    assert (await looked(checks, nested(2))).rule is None
    assert (await looked(checks, nested(3))).rule is Rule.NESTING
    assert (await looked(checks, overlapping(900))).rule is Rule.OVERLAP
    assert list((tmp_path / "scratch").iterdir()) == []


async def test_the_process_is_bounded_in_time_and_the_loop_goes_on(tmp_path: Path) -> None:
    slow = ArchiveChecks(ArchiveLimits(cpu_s=1.0, unpacked_bytes=64 * 1024 * MIB, ratio=10**6), tmp_path)
    lags: list[float] = []

    async def watch() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.01)
            lags.append(time.perf_counter() - before - 0.01)

    watcher = asyncio.get_running_loop().create_task(watch())
    began = time.perf_counter()
    report = await looked(slow, lzma.compress(bytes(64 * MIB), preset=0) * 100)
    assert report.rule is Rule.SLOW
    assert time.perf_counter() - began < 30
    watcher.cancel()
    assert sorted(lags)[len(lags) // 2] < 0.05


async def test_the_process_is_bounded_in_memory_and_has_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a parser that goes wrong could do there: take memory, start a program, read the environment."""
    tries = """
import os, resource, sys
sys.path.insert(0, sys.argv[1])
from gateway.domain.archives import ArchiveLimits
from gateway.service.archive_child import MEMORY, confine
confine(ArchiveLimits())
assert resource.getrlimit(resource.RLIMIT_AS) == (MEMORY, MEMORY) and resource.getrlimit(resource.RLIMIT_CPU) == (20, 20)
try:
    bytearray(MEMORY)
except MemoryError:
    assert not [k for k in os.environ if k != "LC_CTYPE"], os.environ
    os.write(1, b"confined")
"""
    monkeypatch.setenv("SANDGLASS_SECRET", "x" * 40)
    monkeypatch.setattr("gateway.service.archive_worker._CODE", tries)
    checks = ArchiveChecks(ArchiveLimits(), tmp_path)
    with checks.scratch_file() as file:
        process = await checks._start(file)
        assert process.stdout is not None
        assert await process.stdout.read() == b"confined"
        assert await process.wait() == 0


async def test_a_filter_of_system_calls_as_in_the_shipped_unit_is_no_reason_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gateway.service import archive_worker

    forbid = "import os\ndef nice(by): raise PermissionError(1, 'no')\nos.nice = nice\n"
    monkeypatch.setattr(archive_worker, "_CODE", forbid + archive_worker._CODE)
    assert (await looked(ArchiveChecks(ArchiveLimits(), tmp_path), GOOD)).rule is None


async def test_a_process_that_fails_says_nothing_about_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = ArchiveChecks(ArchiveLimits(), tmp_path)
    monkeypatch.setattr("gateway.service.archive_worker._CODE", "raise SystemExit(3)")
    with pytest.raises(Unavailable):
        await looked(checks, GOOD)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere"))
    with pytest.raises(Unavailable):
        await looked(checks, GOOD)


async def test_a_check_that_is_left_ends_its_process(tmp_path: Path) -> None:
    checks = ArchiveChecks(ArchiveLimits(unpacked_bytes=64 * 1024 * MIB, ratio=10**6), tmp_path)
    started: list[asyncio.subprocess.Process] = []
    start = checks._start

    async def noted(file: Any) -> asyncio.subprocess.Process:
        started.append(await start(file))
        return started[0]

    checks._start = noted  # type: ignore[method-assign]
    with checks.scratch_file() as file:
        file.write(gz_bomb(64 * MIB) * 200)
        task = asyncio.get_running_loop().create_task(checks.check(file, OWNER))
        await until(lambda: started)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert started[0].returncode == -9


# --- uploads ------------------------------------------------------------------------------------------------------------


async def test_archives_are_uploaded_when_they_are_fine_and_leave_nothing_when_not(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        good = await access.write_file("a.zip", len(GOOD), chunks(GOOD), overwrite=False)
        assert (good["mime"], good["sha256"]) == ("application/zip", sha256(GOOD))
        for name, data, rule in (
            ("b.zip", BAD, "archive_path"), ("b.tar.gz", gz_bomb(60 * MIB), "archive_ratio"), ("b.xlsx", nested(3), "archive_nesting"),
            ("nameless", BAD, "archive_path"), ("b.7z", b"7z\xbc\xaf\x27\x1c" + bytes(9000), "archive_unsupported"),
        ):  # fmt: skip

            async def cut(data: bytes = data) -> AsyncIterator[bytes]:
                for at in range(0, len(data), 1000):
                    yield data[at : at + 1000]

            with pytest.raises(ArtifactRejected) as caught:
                await access.write_file(name, len(data), cut(), overwrite=False)
            assert caught.value.extra["rule"] == rule
        assert caught.value.extra.keys() == {"rule", "path", "mime"}
        assert [f["path"] for f in (await access.list_files())["files"]] == ["in/a.zip"]
        assert [(a.path, a.verdict) for a in await r.records.list_artifacts(access.session_id)] == [("in/a.zip", "ok")]
        assert len([key async for key in r.store.list("")]) == 1
        assert list((tmp_path / "scratch").iterdir()) == []


async def test_an_archive_that_cannot_be_looked_into_now_is_not_let_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        monkeypatch.setattr("gateway.service.archive_worker._CODE", "raise SystemExit(3)")
        with pytest.raises(Unavailable):
            await access.write_file("a.zip", len(GOOD), chunks(GOOD), overwrite=False)
        assert (await access.list_files())["files"] == []
        assert (await access.write_file("a.csv", 3, chunks(b"a,b"), overwrite=False))["artifact_id"]


async def test_archives_put_aside_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.service.archive_worker.MAX_ASIDE", 3 * MIB)
    data = gzip.compress(os.urandom(2 * MIB))
    async with rig(tmp_path) as r:
        access = await r.session()
        checks, go = r.gateway.world.inspector._checks, asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            yield data[:-10]
            await go.wait()
            yield data[-10:]

        first = asyncio.get_running_loop().create_task(access.write_file("a.gz", len(data), slow(), overwrite=False))
        await until(lambda: checks.aside_bytes)
        with pytest.raises(Unavailable):
            await access.write_file("b.gz", len(data), chunks(data), overwrite=False)
        go.set()
        assert (await first)["artifact_id"] and checks.aside_bytes == 0
        assert (await access.write_file("b.gz", len(data), chunks(data), overwrite=False))["artifact_id"]
        assert checks.aside_bytes == 0


# --- what code made -----------------------------------------------------------------------------------------------------


async def test_a_bad_archive_made_by_code_is_kept_and_restored_and_not_handed_out(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        for path, data in (("out/bad.zip", BAD), ("out/good.zip", GOOD), ("out/bomb.gz", gz_bomb(60 * MIB)), ("out/tool", ELF), ("out/x.csv", BAD)):
            make(r, path, data)
        assert await checkpoint(r, access) == {
            "out/bad.zip": ("application/zip", "archive_path"), "out/good.zip": ("application/zip", "ok"),
            "out/bomb.gz": ("application/gzip", "archive_ratio"), "out/tool": ("application/x-executable", "ok"),
            "out/x.csv": ("application/zip", "archive_path"),
        }  # fmt: skip
        ids = {a["path"]: a["artifact_id"] for a in await access.artifacts()}

        async def refused(policy: Downloads) -> None:
            rules(r, policy)
            for path, rule in (("out/bad.zip", "archive_path"), ("out/bomb.gz", "archive_ratio"), ("out/tool", "program")):
                with pytest.raises(ArtifactRejected) as caught:
                    await body(access.read_file(path))
                assert caught.value.extra["rule"] == rule
                with pytest.raises(ArtifactRejected):
                    await r.gateway.artifact(ALICE, ids[path])
            assert await body(access.read_file("out/good.zip")) == GOOD
            told = {f["path"]: f.get("held_back", "") for f in (await access.list_files())["files"]}
            assert told["out/good.zip"] == "" and told["out/bad.zip"].startswith("An entry's path") and "program" in told["out/tool"]

        await refused(Downloads.CHECKED)
        access.recycle()
        await until(lambda: access.to_json()["state"] == "dormant")
        await refused(Downloads.CHECKED)
        rules(r, Downloads.ALL)
        assert not any("held_back" in f for f in (await access.list_files())["files"])
        assert await body(access.read_file("out/bad.zip")) == BAD
        await r.run(access, "1")
        assert {(f["path"], f["sha256"]) for f in access.to_json()["restored_files"]} >= {("out/bad.zip", sha256(BAD)), ("out/tool", sha256(ELF))}
        await refused(Downloads.KNOWN)
        assert await body(access.read_file("out/good.zip")) == GOOD
        access.end()
        await until(lambda: access.session_id not in r.gateway.live)
        over = await r.gateway.session(ALICE, access.session_id, ended=True)
        assert {f["path"] for f in (await over.list_files())["files"] if "held_back" in f} >= {"out/bad.zip", "out/tool"}
        with pytest.raises(ArtifactRejected):
            await body(over.read_file("out/bad.zip"))
        assert await body(over.read_file("out/good.zip")) == GOOD


async def test_a_file_that_is_not_kept_is_looked_into_on_its_way_out(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        big = gzip.compress(os.urandom(3 * MIB))
        for path, data in (("bad.zip", BAD), ("big.gz", big), ("tool", ELF), ("empty", b""), ("short.zip", GOOD[:-30]), ("a.png", b"text")):
            make(r, path, data)
        make(r, "disguised.png", BAD)
        assert await body(access.read_file("a.png")) == b"text"
        rules(r, Downloads.KNOWN)
        for path, rule in (
            ("bad.zip", "archive_path"), ("tool", "program"), ("short.zip", "archive_broken"), ("a.png", "type_mismatch"),
            ("disguised.png", "archive_path"),
        ):  # fmt: skip
            with pytest.raises(ArtifactRejected) as caught:
                await body(access.read_file(path))
            assert caught.value.extra["rule"] == rule
        assert await body(access.read_file("big.gz")) == big
        assert await body(access.read_file("empty")) == b""
        with pytest.raises(NotFound):
            await body(access.read_file("none"))


async def test_a_verdict_that_a_kill_prevented_is_made_at_the_download(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        make(r, "out/bad.zip", BAD)
        make(r, "out/good.zip", GOOD)
        await checkpoint(r, access)
        found = {a.path: a for a in await r.records.list_artifacts(access.session_id)}
        for artifact in found.values():
            await r.records.judge_artifact(artifact.artifact_id, "", "")  # as an earlier release wrote them, too
        _, stream = await r.gateway.artifact(ALICE, found["out/good.zip"].artifact_id)
        assert await body(stream) == GOOD
        r.store.failing = StoreUnavailable("down")
        with pytest.raises(StoreUnavailable):
            await r.gateway.artifact(ALICE, found["out/bad.zip"].artifact_id)
        r.store.failing = None
        with pytest.raises(ArtifactRejected):
            await r.gateway.artifact(ALICE, found["out/bad.zip"].artifact_id)
        again = {a.path: a for a in await r.records.list_artifacts(access.session_id)}
        assert again == {path: replace(found[path], verdict=verdict) for path, verdict in (("out/bad.zip", "archive_path"), ("out/good.zip", "ok"))}


async def test_many_archives_at_once_are_all_judged(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        for n in range(12):
            make(r, f"out/{n}.tar", tarred((f"{n}", b"x")))
        assert {verdict for _, verdict in (await checkpoint(r, access)).values()} == {"ok"}


@pytest.mark.parametrize("policy", list(Downloads))
def test_the_policy_is_total(policy: Downloads) -> None:
    kept = {
        (mime, verdict): held_back(policy, mime, verdict)
        for mime in ("text/csv", "application/octet-stream", "application/x-executable", "application/wasm")
        for verdict in ("ok", *Rule)
    }
    if policy is Downloads.ALL:
        assert set(kept.values()) == {None}
        return
    assert all(rule is not None for (_, verdict), rule in kept.items() if verdict not in ("ok", Rule.TYPE))
    assert kept["text/csv", "ok"] is None
    assert kept["text/csv", Rule.TYPE] is (Rule.TYPE if policy is Downloads.KNOWN else None)
    assert kept["application/x-executable", Rule.TYPE] is Rule.PROGRAM
    assert kept["application/x-executable", "ok"] is kept["application/wasm", "ok"] is Rule.PROGRAM
    assert kept["application/octet-stream", "ok"] is (Rule.UNKNOWN if policy is Downloads.KNOWN else None)
    assert all(rule.sentence for rule in Rule)
