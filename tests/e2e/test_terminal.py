"""``sandglass run`` and ``sandglass sessions`` as a person calls them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from e2e_gateway import ROOT, Gateway, command

USER = ["--user", "terry", "--tenant", "t1"]


def call(gateway: Gateway, *arguments: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command(), *arguments], env=gateway.environment | env, cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def run(gateway: Gateway, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return call(gateway, "run", "-", "--profile", "container", *USER, *arguments, stdin=code)


@pytest.fixture(scope="module")
def session(gateway: Gateway) -> str:
    """Left open by a first run."""
    done = run(gateway, "x = 20\nprint('made')", "--keep")
    assert done.returncode == 0, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert "--session " in last, done.stderr
    return last.split("--session ")[1].split()[0]


def test_a_script_with_files_and_cells(gateway: Gateway, tmp_path: Path) -> None:
    script, data = tmp_path / "script.py", tmp_path / "sales.csv"
    data.write_text("a,b\n1,2\n")
    script.write_text(
        "import sys\ntext = open('in/sales.csv').read()\nprint(len(text), flush=True)\nprint('aside', file=sys.stderr)\n"
        "# %% second\nopen('out.txt', 'w').write(text.upper())\n# %%\nraise SystemError('bad')\n# %%\nprint('never')\n"
    )
    arguments = ["run", str(script), "--cells", "--upload", str(data), "--download", "out.txt", "--to", str(tmp_path), *USER]
    failed = call(gateway, *arguments)
    assert failed.returncode == 1 and failed.stdout == "8\n8\n", (failed.stdout, failed.stderr)
    assert "aside\n" in failed.stderr and "SystemError: bad" in failed.stderr and "\x1b" not in failed.stderr
    assert "sandglass: cell 3 of 4" in failed.stderr and "sandglass: code_error" in failed.stderr and "Next: fix_code." in failed.stderr
    script.write_text(script.read_text().replace("raise SystemError('bad')", "pass"))
    done = call(gateway, *arguments, "--quiet")
    assert done.returncode == 0 and done.stdout == "8\n8\nnever\n" and done.stderr == "aside\n", done.stderr
    assert (tmp_path / "out.txt").read_text() == "A,B\n1,2\n"


@pytest.mark.parametrize(
    ("code", "arguments", "status", "words"),
    [
        ("x + 1", [], 0, "sandglass: ok"),
        ("while True: pass", ["--timeout", "1"], 124, "timeout"),
        ("x", ["--generation", "9"], 5, "generation_mismatch"),
        ("import os; os.kill(os.getpid(), 9)", [], 5, "variables lost: "),
    ],
)
def test_the_exit_status_says_how_it_ended(gateway: Gateway, session: str, code: str, arguments: list[str], status: int, words: str) -> None:
    done = run(gateway, code, "--session", session, *arguments)
    assert done.returncode == status and words in done.stderr, (done.returncode, done.stderr)
    assert done.stdout == ("21\n" if status == 0 else "")
    if status == 5 and not arguments:
        assert "x" in done.stderr.split("variables lost: ")[1].splitlines()[0].split(", "), done.stderr


def test_what_the_gateway_refuses(gateway: Gateway) -> None:
    nobody = run(gateway, "1", "--session", "nobodys")
    assert nobody.returncode == 2 and "sandglass: not_found: " in nobody.stderr
    token = call(gateway, "sessions", SANDGLASS_URL=gateway.url, SANDGLASS_TOKEN="bad")
    assert token.returncode == 2 and "sandglass: unauthenticated: " in token.stderr and "Traceback" not in token.stderr


def test_ctrl_c_interrupts_the_cell(gateway: Gateway, session: str) -> None:
    code = "import time\nprint('begun', flush=True)\ntime.sleep(600)"
    arguments = [*command(), "run", "-", "--session", session, *USER]
    with subprocess.Popen(
        arguments, env=gateway.environment, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as child:  # fmt: skip
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(code)
        child.stdin.close()
        child.stdin = None
        assert child.stdout.readline() == "begun\n"
        os.kill(child.pid, signal.SIGINT)
        begun = time.monotonic()
        _, err = child.communicate(timeout=60)
    assert child.returncode == 130 and time.monotonic() - begun < 30, err
    assert "sandglass: interrupts the cell" in err and "KeyboardInterrupt" in err and "sandglass: interrupted" in err
    assert run(gateway, "print('alive')", "--session", session).stdout == "alive\n"


def test_the_list_of_sessions(gateway: Gateway, session: str) -> None:
    listed = call(gateway, "sessions", *USER)
    assert listed.returncode == 0 and session in listed.stdout and "ENDS IF IDLE" in listed.stdout, listed.stderr
    raw = json.loads(call(gateway, "sessions", "--json", *USER, SANDGLASS_URL=gateway.url, SANDGLASS_TOKEN=gateway.token("terry")).stdout)
    assert [s["session_id"] for s in raw] == [session]
    ended = call(gateway, "sessions", "--end", session, *USER)
    assert ended.returncode == 0
