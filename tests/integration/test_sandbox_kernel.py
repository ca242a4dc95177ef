"""A kernel's life in a real sandbox: start, cells, variables, interrupt, restart, death, orphans."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable

import pytest

from tests.integration.sandbox_client import Execution, Sandbox
from tests.integration.sandbox_fixtures import engine, new_sandbox, runtime, shared

__all__ = ["engine", "new_sandbox", "runtime", "shared"]

PROCESSES = """
import os
def processes():
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/status") as f: status = dict(l.split(":\\t", 1) for l in f.read().splitlines() if ":\\t" in l)
                with open(f"/proc/{name}/cmdline") as f: cmdline = f.read().replace("\\0", " ").strip()
                found.append((int(name), int(status["Uid"].split()[0]), status["State"][0], status["Name"], cmdline))
            except OSError: pass
    return found
"""


def fresh(sandbox: Sandbox) -> Sandbox:
    """A kernel that is ready, whatever the test before did."""
    if sandbox.hello and sandbox.call("stats")["ok"]:
        sandbox.restart()
    return sandbox


def variables(execution: Execution) -> dict[str, tuple[str, int | None]] | None:
    messages = execution.of_type("sandglass_variables")
    return {v["name"]: (v["type"], v["size"]) for v in messages[-1].content["variables"]} if messages else None


def test_a_cell_runs_and_its_messages_come_in_order(shared: Sandbox) -> None:
    execution = shared.execute("print('a', flush=True)\n1 + 1")
    assert execution.reply is not None and execution.reply["status"] == "ok"
    assert execution.result == "2" and execution.text == "a\n"
    iopub = [m.msg_type for m in execution.messages if m.channel == "iopub"]
    assert iopub == ["status", "execute_input", "stream", "execute_result", "status"]


def test_ready_carries_kernel_info_and_own_requests_are_swallowed(new_sandbox: Callable[..., Sandbox]) -> None:
    sandbox = new_sandbox().start(kernel=False)
    assert sandbox.hello["kernel"]["state"] == "none"
    # requests that come before the kernel wait for it, in order
    early = [sandbox.execute_nowait(f"print({i})") for i in range(5)]
    sandbox.call("start_kernel")
    ready = sandbox.wait_event("ready")
    assert ready["life"] == 1 and ready["kernel_info"]["language_info"]["name"] == "python"
    assert "debugger" not in ready["kernel_info"]["supported_features"]
    sandbox.wait(lambda: all(e.done for e in early), "early cells")
    assert [e.text for e in early] == [f"{i}\n" for i in range(5)]
    parents = {m.parent_id for m in sandbox.kernel}
    assert parents == {e.msg_id for e in early}
    info = sandbox.send("shell", "kernel_info_request", {})
    sandbox.wait(lambda: any(m.parent_id == info and m.msg_type == "kernel_info_reply" for m in sandbox.kernel), "kernel_info_reply")


def test_immediate_output_after_ready_is_not_lost(new_sandbox: Callable[..., Sandbox]) -> None:
    sandbox = new_sandbox().start(kernel=False)
    waiting = sandbox.execute_nowait("print('first')")
    sandbox.call("start_kernel")
    sandbox.wait(lambda: waiting.done, "the first cell")
    assert waiting.text == "first\n"
    for _ in range(3):
        sandbox.call("restart_kernel")
        waiting = sandbox.execute_nowait("print('first')")
        sandbox.wait(lambda w=waiting: w.done, "the first cell")
        assert waiting.text == "first\n"


def test_variables_are_told_before_idle_and_only_when_they_change(shared: Sandbox) -> None:
    fresh(shared)
    execution = shared.execute(
        "import os\nx = 1\ntext = 'a' * 1000\nclass C:\n  def __sizeof__(self): raise SystemExit\n  __repr__ = __sizeof__\nc = C()\n_h = 2"
    )
    # of iopub alone: the reply has a socket of its own, and may be read before or after the idle
    types = [m.msg_type for m in execution.messages if m.channel == "iopub"]
    assert types.index("sandglass_variables") < len(types) - 1 and types[-1] == "status"
    found = variables(execution)
    assert found is not None and set(found) == {"x", "text", "C", "c"}
    assert found["x"][0] == "int" and found["c"] == ("C", None)
    assert found["text"][1] is not None and 1000 <= found["text"][1] < 1100
    assert variables(shared.execute("pass")) is None
    assert variables(shared.execute("del x")) is not None


def test_sizes_of_tables_are_known_and_cheap(shared: Sandbox) -> None:
    fresh(shared)
    code = "import numpy as np, pandas as pd\na = np.zeros((1000, 100))\ndf = pd.DataFrame({'n': range(100_000), 's': ['x' * 10] * 100_000})\n"
    code += "s = df.n\nbig = [object() for _ in range(3_000_000)]\nk = np.float64(1)\nfor i in range(1000): globals()[f'v{i}'] = i"
    execution = shared.execute(code, timeout=120)
    found = variables(execution)
    assert found is not None
    assert found["a"] == ("ndarray", 800_000)
    assert found["df"][0] == "DataFrame" and found["df"][1] is not None and found["df"][1] >= 800_000
    assert found["s"][0] == "Series" and found["big"][0] == "list"
    message = execution.of_type("sandglass_variables")[-1]
    assert len(found) <= 200 and message.content["more"] >= 800
    times = []
    for i in range(20):
        began = time.perf_counter()
        shared.execute(f"v{i} = 'changed'")
        times.append(time.perf_counter() - began)
    assert sorted(times)[10] < 0.1


def test_an_error_is_described_without_its_text(shared: Sandbox) -> None:
    for code, name, errno in (
        ("import nothing_of_that_name", "ModuleNotFoundError", None),
        ("def f(:", "SyntaxError", None),
        ("raise MemoryError", "MemoryError", None),
        ("open('/workspace/none/x', 'w')", "FileNotFoundError", 2),
        ("raise OSError(28, 'full')", "OSError", 28),
    ):
        execution = shared.execute(code)
        assert execution.reply is not None and execution.reply["status"] == "error"
        (message,) = execution.of_type("sandglass_error")
        assert name in message.content["mro"] and message.content["errno"] == errno, code


def test_keep_and_result_speak_and_refuse(shared: Sandbox) -> None:
    execution = shared.execute(
        "import sandglass\nsandglass.keep('a/**', './b.csv', '/workspace/c')\nsandglass.result({'n': [1, 2.5, None], 'ä': True})"
    )
    assert execution.of_type("sandglass_keep")[0].content == {"patterns": ["a/**", "b.csv", "c"]}
    assert execution.of_type("sandglass_result")[0].content == {"value": {"n": [1, 2.5, None], "ä": True}}
    for call, error in (
        ("sandglass.keep()", "ValueError"),
        ("sandglass.keep('../x')", "ValueError"),
        ("sandglass.keep(3)", "TypeError"),
        ("sandglass.result({1: 2})", "TypeError"),
        ("sandglass.result([float('nan')])", "ValueError"),
        ("sandglass.result({'rows': [object()]})", "TypeError"),
        ("sandglass.result('x' * 2_000_000)", "ValueError"),
    ):
        reply = shared.execute(call).reply
        assert reply is not None and reply.get("ename") == error, (call, reply)


def test_figures_are_pictures_and_chinese_has_glyphs(shared: Sandbox) -> None:
    execution = shared.execute(
        "import warnings; warnings.simplefilter('error')\nimport matplotlib.pyplot as plt\n"
        "plt.title('销售额 売上 매출 (€)'); plt.plot([1, 2]); plt.show()",
        timeout=120,
    )
    assert execution.reply is not None and execution.reply["status"] == "ok", execution.reply
    (figure,) = execution.of_type("display_data")
    assert base64.b64decode(figure.content["data"]["image/png"]).startswith(b"\x89PNG")
    fresh(shared)  # now from a zygote that may hold matplotlib already
    execution = shared.execute("import matplotlib.pyplot as plt\nplt.plot([1, 2])", timeout=120)
    assert "image/png" in execution.of_type("display_data")[0].content["data"]


def test_restart_leaves_nothing_of_the_old_kernel(shared: Sandbox) -> None:
    fresh(shared)
    before = shared.execute(
        PROCESSES + "import subprocess, os\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "if os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n    import time; time.sleep(1000)\n  os._exit(0)\n"
        "open('/workspace/stays', 'w').close()\nprint(os.environ['IPYTHONDIR'], os.getpid(), os.listdir('/run/sandglass'))"
    ).text.split()
    shared.wait(lambda: shared.call("stats")["user_processes"] == 3, "three processes")
    result = shared.call("restart_kernel")
    exited = shared.wait_event("exited", life=result["life"] - 1)
    assert exited["expected"] and exited["signal"] == 9
    shared.wait_event("ready", life=result["life"])
    after = shared.execute(
        PROCESSES + "print(os.environ['IPYTHONDIR'], os.getpid(), os.listdir('/run/sandglass'))\nprint([p for p in processes() if p[2] == 'Z'])"
    ).text
    words = after.split()
    assert words[0] != before[0] and words[1] != before[1] and words[2] != before[2]
    assert words[3] == "[]"
    assert shared.call("stats")["user_processes"] == 1
    assert "stays" in shared.execute("print(os.listdir('.'))").text


@pytest.mark.parametrize(
    ("code", "within_s"),
    [
        ("while True: pass", 3.0),
        ("import time; time.sleep(60)", 3.0),
        ("import asyncio; await asyncio.sleep(60)", 3.0),
        ("import subprocess; subprocess.run(['sleep', '60'])", 3.0),
        ("input_ = __import__('threading').Event(); input_.wait(60)", 3.0),
    ],
)
def test_interrupt_ends_a_cell_and_keeps_the_kernel(shared: Sandbox, code: str, within_s: float) -> None:
    shared.execute("kept = 1")
    execution = shared.execute_nowait("print('on', flush=True)\n" + code)
    shared.wait(lambda: execution.text, "its first output")
    time.sleep(0.1)
    began = time.monotonic()
    shared.call("interrupt", grace_ms=500)
    shared.wait(lambda: execution.done, "the end of the interrupted cell", 20)
    took = time.monotonic() - began
    assert execution.reply is not None and execution.reply["status"] == "error"
    assert execution.reply["ename"] in ("KeyboardInterrupt", "CancelledError")
    assert took < within_s
    assert shared.execute("kept").result == "1"


def test_interrupt_reaches_a_cell_that_ignores_it_once_only_by_a_kill(shared: Sandbox) -> None:
    fresh(shared)
    execution = shared.execute_nowait("import time, signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('on', flush=True)\ntime.sleep(60)")
    shared.wait(lambda: execution.text, "its first output")
    assert shared.call("interrupt", grace_ms=100)["busy"]
    time.sleep(0.5)
    shared.pump(0.1)
    assert not execution.done
    assert shared.call("kill_user") == {"id": shared.results.popitem()[0], "ok": True, "remaining": 0}
    event = shared.wait_event("exited", signal=9)
    assert event["expected"]
    assert shared.call("start_kernel")["ok"]
    shared.wait_event("ready")


def test_death_is_told_with_its_cause_after_the_last_output(shared: Sandbox) -> None:
    for code, cause in (
        ("import os; os._exit(3)", {"code": 3}),
        ("import os; os.kill(os.getpid(), 9)", {"signal": 9}),
        ("import ctypes; ctypes.string_at(0)", {"signal": 11}),
    ):
        execution = shared.execute_nowait("import time\nprint('last words', flush=True); time.sleep(0.1)\n" + code)
        event = shared.wait_event("exited", expected=False)
        assert {k: event[k] for k in ("code", "signal") if k in event} == cause
        assert execution.text == "last words\n"
        assert event["taken"] == shared.outbox.last[1]
        assert shared.call("restart_kernel")["ok"]
        shared.wait_event("ready")
        assert shared.execute("1").result == "1"


def test_orphans_are_reaped(shared: Sandbox) -> None:
    fresh(shared)
    shared.execute(
        PROCESSES + "for _ in range(50):\n  if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: os._exit(0)\n    os._exit(0)\n  os.wait()"
    )
    time.sleep(0.3)
    assert shared.execute("print([p for p in processes() if p[2] == 'Z'])").text == "[]\n"


def test_kill_user_kills_all_that_a_bomb_made(new_sandbox: Callable[..., Sandbox]) -> None:
    sandbox = new_sandbox().start()
    # small processes: on gVisor a hundred copies of a Python would end the sandbox by its memory limit first
    sandbox.execute_nowait(
        "import os, signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True:\n"
        "  try: os.posix_spawn('/bin/sleep', ['sleep', '1000'], {}, setsid=True)\n  except OSError: time.sleep(0.01)"
    )
    sandbox.wait(lambda: sandbox.call("stats")["user_processes"] > 100, "the bomb", 60)
    result = sandbox.call("kill_user")
    assert result["ok"] and result["remaining"] == 0
    assert sandbox.call("stats")["user_processes"] == 0
    assert sandbox.call("start_kernel")["ok"]
    sandbox.wait_event("ready", life=2)


def test_a_process_that_signals_everything_does_not_stop_a_restart(new_sandbox: Callable[..., Sandbox]) -> None:
    sandbox = new_sandbox().start()
    sandbox.execute(
        "import os, signal\nif os.fork() == 0:\n  os.setsid()\n  for s in (2, 15): signal.signal(s, signal.SIG_IGN)\n"
        "  while True:\n    for p in os.listdir('/proc'):\n      if p.isdigit() and int(p) not in (os.getpid(), os.getppid()):\n"
        "        try: os.kill(int(p), 19 if int(p) > 20 else 15)\n        except OSError: pass"
    )
    result = sandbox.call("restart_kernel")
    assert result["ok"]
    sandbox.wait_event("ready", life=2)
    assert sandbox.call("stats")["user_processes"] == 1


def test_requests_for_the_old_kernel_do_not_reach_the_new_one(shared: Sandbox) -> None:
    fresh(shared)
    shared.execute_nowait("import time; time.sleep(30)")
    old = [shared.execute_nowait("print('old')") for _ in range(3)]
    after = shared.outbox.last[1]
    call = shared.call_nowait("restart_kernel", after=after)
    new = shared.execute_nowait("print('new')")
    shared.wait(lambda: new.done, "the new cell")
    assert shared.results[call]["ok"] and new.text == "new\n"
    assert not any(e.done for e in old)


def test_a_kernel_starts_on_full_disks(new_sandbox: Callable[..., Sandbox]) -> None:
    sandbox = new_sandbox().start()
    for place in ("/tmp", "/dev/shm", "/workspace"):
        sandbox.execute(f"f = open('{place}/full', 'wb')\ntry:\n  while True: f.write(b'x' * 2**20); f.flush()\nexcept OSError: pass", timeout=120)
    assert sandbox.call("restart_kernel")["ok"]
    event = sandbox.wait(lambda: next((e for e in sandbox.events if e["event"] in ("ready", "start_failed") and e["life"] == 2), None), "an answer")
    assert event["event"] == "ready", event


def test_a_kernel_that_cannot_start_is_told_with_the_reason(new_sandbox: Callable[..., Sandbox]) -> None:
    sandbox = new_sandbox().start()
    # IPython reads this directory's configuration before anything else
    sandbox.execute(
        "import os\nfor p in ('/tmp', '/dev/shm', '/workspace'):\n  i = 0\n"
        "  try:\n    while i < 30000: os.mkdir(f'{p}/{i}'); i += 1\n  except OSError: pass",
        timeout=120,
    )
    assert sandbox.call("restart_kernel")["ok"]
    event = sandbox.wait(lambda: next((e for e in sandbox.events if e["event"] in ("ready", "start_failed") and e["life"] == 2), None), "an answer")
    if event["event"] == "start_failed":  # gVisor has no limit of inodes
        assert "no space" in event["detail"].lower()
        assert sandbox.call("kill_user")["ok"]
