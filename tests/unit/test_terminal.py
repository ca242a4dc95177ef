"""``sandglass run`` and ``sandglass sessions``: what needs no gateway."""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sandglass_client as sg

from gateway import cli
from gateway.domain.model import ExitReason
from gateway.terminal.progress import Progress
from gateway.terminal.run import EXIT_STATUS
from gateway.terminal.sessions import table

ROOT = Path(__file__).resolve().parents[2]


def test_every_exit_reason_has_its_status_and_stands_in_the_document() -> None:
    assert set(EXIT_STATUS) == {str(reason) for reason in ExitReason}
    text = (ROOT / "docs" / "agents.md").read_text()
    said = {word: int(row[1]) for row in re.finditer(r"^\| (\d+) \|(.*)\|$", text, re.MULTILINE) for word in re.findall(r"`(\w+)`", row[2])}
    assert said == EXIT_STATUS


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "nowhere.py"], "cannot be read"),
        (["run", "empty.py"], "holds no code"),
        (["run", "good.py", "--upload", "nowhere.csv"], "nowhere.csv is no file"),
        (["run", "good.py"], "no gateway runs on"),
        (["sessions"], "no gateway runs on"),
    ],
)
def test_what_is_wrong_with_a_call(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SANDGLASS_STATE", str(tmp_path / "state"))
    for name in ("SANDGLASS_URL", "SANDGLASS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "empty.py").write_text("\n\n")
    (tmp_path / "good.py").write_text("1\n")
    assert cli.main(arguments) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "state").exists(), "a client leaves no state behind"
    monkeypatch.setenv("SANDGLASS_URL", "http://127.0.0.1:9")
    if words.startswith("no gateway"):
        assert cli.main(arguments) == 2
        assert "SANDGLASS_TOKEN must be" in capsys.readouterr().err
        monkeypatch.setenv("SANDGLASS_TOKEN", "t")
        if arguments[0] == "run":
            assert cli.main([*arguments, "--patience", "0"]) == 75
            assert "unreachable: " in capsys.readouterr().err


def test_our_own_words_stand_on_lines_of_their_own_and_apart_from_the_output() -> None:
    out, err = io.StringIO(), io.StringIO()
    progress = Progress(out=out, err=err)
    progress.doing("runs")
    progress.output("half a line")
    progress.output("\x1b[31mred\x1b[0m", error=True)
    progress.tell("variables lost: df")
    assert out.getvalue() == "half a line"
    assert err.getvalue() == "sandglass: runs\nred\nsandglass: variables lost: df\n"
    quiet = Progress(quiet=True, out=out, err=(err := io.StringIO()))
    quiet.note("nobody sees this")
    quiet.tell("a loss")
    assert err.getvalue() == "sandglass: a loss\n"


def test_the_table_of_sessions() -> None:
    now = datetime(2026, 1, 31, 10, tzinfo=UTC)
    one = sg.Session("s1", "active", 2, "with\x1b[2Jtricks", "gvisor", server_time=now, idle_deadline=now.replace(minute=20), idle_paused=False,
                     max_deadline=now.replace(hour=14), variables=(sg.Variable("df"),))  # fmt: skip
    two = sg.Session("s2", "ended", 3, "b", "container", reason="idle_timeout", lost_variables=(sg.Variable("x"), sg.Variable("y")))
    head, first, second = table([one, two], everyone=False)
    assert head.split() == ["SESSION", "NAME", "PROFILE", "STATE", "GEN", "ENDS", "IF", "IDLE", "ENDS", "AT", "MOST", "VARIABLES"]
    assert first.split("  ")[0] == "s1" and "with?[2Jtricks" in first and "in 20 min" in first and "in 4 h" in first and first.endswith("df")
    assert "ended (idle_timeout)" in second and second.endswith("lost: x, y")
