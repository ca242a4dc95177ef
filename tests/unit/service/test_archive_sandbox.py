"""Archives looked into in a disposable sandbox: the program that is sent there, and what its answer is taken for."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from gateway.domain.archives import ArchiveLimits
from gateway.errors import ArtifactRejected, Unavailable
from gateway.service import archive_sandbox
from gateway.service.archive_child import FULL
from gateway.service.archive_sandbox import START, ArchiveSandbox, program
from gateway.service.inspection import InspectionRules, Inspector

from .harness import Rig, chunks, rig, until

sys.path.insert(0, str(Path(__file__).parents[1]))

from archive_fixture import gz_bomb, nested, overlapping, tarred, zipped

GOOD = zipped(("a.csv", b"a,b\n" * 1000))


@pytest.mark.parametrize(
    ("data", "rule"),
    [(GOOD, None), (nested(2), None), (tarred(("a", b"x")), None), (nested(3), "archive_nesting"), (overlapping(900), "archive_overlap"),
     (zipped(("../x", b"x")), "archive_path"), (gz_bomb(60 * 1024**2), "archive_ratio")],
)  # fmt: skip
async def test_the_program_runs_from_what_is_sent_and_nothing_else(tmp_path: Path, data: bytes, rule: str | None) -> None:
    look, archive = tmp_path / "look.zip", tmp_path / "archive"
    look.write_bytes(program())
    archive.write_bytes(data)
    with archive.open("rb") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", "-c", START, str(look), json.dumps(asdict(ArchiveLimits())), str(tmp_path),
            stdin=file, stdout=asyncio.subprocess.PIPE, env={}, cwd=tmp_path,
        )  # fmt: skip
        said, _ = await process.communicate()
    assert process.returncode == 0
    assert json.loads(said)["rule"] == rule
    assert len(program()) < 128 * 1024


def answering(r: Rig, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """The sandbox says this of every archive."""
    monkeypatch.setattr(archive_sandbox, "CODE", code.replace("{", "{{").replace("}", "}}"))
    world = r.gateway.world
    world.disposables.profile = "container"
    apart = ArchiveSandbox(world.disposables, ArchiveLimits())
    world.inspector = Inspector(world.records, world.store, world.tasks, r.path / "scratch", InspectionRules(), apart)


def said(code: int, rule: str | None = None) -> str:
    found = json.dumps({"rule": rule, "where": "a\x1b[2J", "entries": 1, "unpacked_bytes": 2})
    return "write:report:" + json.dumps([code, found])


async def test_its_answer_decides_and_it_gets_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig(tmp_path) as r:
        answering(r, monkeypatch, said(0))
        access = await r.session()
        assert (await access.write_file("a.zip", len(GOOD), chunks(GOOD), overwrite=False))["artifact_id"]
        for answer, rule in ((said(0, "archive_path"), "archive_path"), (said(-24), "archive_slow"), (said(FULL), "archive_size")):
            answering(r, monkeypatch, answer)
            with pytest.raises(ArtifactRejected) as caught:
                await access.write_file("b.zip", len(GOOD), chunks(GOOD), overwrite=False)
            assert caught.value.extra["rule"] == rule and "\x1b" not in caught.value.detail
        assert [f["path"] for f in (await access.list_files())["files"]] == ["in/a.zip"]


@pytest.mark.parametrize(
    "code", ["error:MemoryError", "die:9", "write:report:[]", "write:report:[0, 7]", 'write:report:[0, "[["]', "write:report:x", "1", said(1, "no")]
)
async def test_what_it_cannot_say_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    async with rig(tmp_path) as r:
        answering(r, monkeypatch, code)
        access = await r.session()
        with pytest.raises(Unavailable):
            await access.write_file("a.zip", len(GOOD), chunks(GOOD), overwrite=False)
        assert (await access.list_files())["files"] == []


async def test_an_archive_larger_than_a_sandbox_takes_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig(tmp_path) as r:
        answering(r, monkeypatch, said(0))
        access = await r.session()
        await access.write_file("a.zip", len(GOOD), chunks(GOOD), overwrite=False)
        await until(lambda: len(r.runtime.sandboxes) == 2)
        for sandbox in r.runtime.sandboxes.values():
            sandbox.files.fail_next = "" if "a.zip" in sandbox.files.roots["in"] else "too_large"
        with pytest.raises(ArtifactRejected) as caught:
            await access.write_file("b.zip", len(GOOD), chunks(GOOD), overwrite=False)
        assert caught.value.extra["rule"] == "archive_size"
