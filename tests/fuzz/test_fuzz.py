"""The fuzz targets on their seeds, on damaged seeds, and for ten seconds each with atheris (``tests/fuzz/run.py`` goes on for longer)."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from gateway.protocol.frames import Parser
from tests.fuzz.targets import TARGETS, frames

ROOT = Path(__file__).resolve().parents[2]
SECONDS = int(os.environ.get("SANDGLASS_TEST_FUZZ_SECONDS", "10"))


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_seeds_hold_whole_and_damaged(name: str) -> None:
    target, rng = TARGETS[name], random.Random(7)
    for seed in target.seeds():
        target.run(seed)
        for _ in range(20):
            damaged = bytearray(seed)
            for _ in range(rng.randrange(1, 5)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            target.run(bytes(damaged[: rng.randrange(1, len(damaged) + 1)]))


def test_a_target_notices_a_parser_that_breaks_its_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = TARGETS["frames"].seeds()
    monkeypatch.setattr(Parser, "feed", lambda self, data: [][1])
    with pytest.raises(IndexError):
        frames(seeds[0])


@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is not installed (no wheel for this Python)")
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_ten_seconds_of_fuzzing(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz.run", name, "--seconds", str(SECONDS), "--corpus", str(tmp_path / "corpus")]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = dict(os.environ, PYTHONPATH=path)
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=SECONDS + 120, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    executed = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stderr)
    covered = re.findall(r"cov: (\d+)", done.stderr)
    assert executed and int(executed[1]) > SECONDS, done.stderr[-2000:]
    assert covered and int(covered[-1]) > 20, "the parsers are instrumented, and were reached"
    assert not list((tmp_path / "corpus").glob("crash-*"))
