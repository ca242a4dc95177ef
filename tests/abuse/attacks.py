"""The cases that go through a gateway: floods, hostile messages and files, and the closed words for what runs out."""

from __future__ import annotations

from gateway.domain.files import MAX_DECLARATIONS
from tests.abuse.through import Attack, AttackFunction
from tests.integration.test_sandbox_stream import RAW

ATTACKS: dict[str, AttackFunction] = {}
OUT = "import os\nos.makedirs('/workspace/out', exist_ok=True); os.chdir('/workspace/out')\n"


def attack(function: AttackFunction) -> AttackFunction:
    ATTACKS[function.__name__] = function
    return function


# ---------------------------------------------------------------- floods: bounded, so that one that is not cut ends, too


@attack
def flood_print(a: Attack) -> None:
    done = a.ends("for n in range(60): print('x' * 1_000_000)", "output_limit")
    assert done["truncated"]["bytes_dropped"] > 40_000_000, done["truncated"]


@attack
def flood_flush(a: Attack) -> None:
    done = a.ends("for n in range(7_000): print(n, flush=True)", "output_limit")
    assert done["truncated"]["messages_dropped"] > 1000, done["truncated"]


@attack
def flood_stderr(a: Attack) -> None:
    a.ends("import sys\nfor n in range(60): sys.stderr.write('e' * 1_000_000); sys.stderr.flush()", "output_limit")


@attack
def flood_descriptor(a: Attack) -> None:
    a.ends("import os\nfor fd in (1, 2):\n  for n in range(30): os.write(fd, b'y' * 1_000_000)", "output_limit", "ok", "code_error")


@attack
def flood_display(a: Attack) -> None:
    code = "from IPython.display import publish_display_data as p\nfor n in range(40): p({'text/html': 'h' * 1_000_000, 'image/png': 'A' * 400_000})"
    a.ends(code, "output_limit")


@attack
def flood_update(a: Attack) -> None:
    a.ends(
        "from IPython.display import display, clear_output\nh = display('a', display_id=True)\n"
        "for n in range(4000): h.update('u' * 10_000); clear_output()", "output_limit",
    )  # fmt: skip


@attack
def flood_comm(a: Attack) -> None:
    a.ends(
        "from comm import create_comm\nc = create_comm(target_name='x')\n"
        "for n in range(3000): c.send({'d': 'c' * 10_000}, buffers=[b'b' * 10_000])\nfor n in range(500): create_comm(target_name='y', data={'d': 'd' * 1000})",
        "ok", "output_limit",
    )  # fmt: skip


@attack
def flood_error(a: Attack) -> None:
    done = a.ends("raise ValueError('v' * 60_000_000)", "code_error", "output_limit")
    assert done["error"] is None or len(done["error"]["value"]) < 4_000_000
    a.ends("def f(n):\n  try: raise KeyError('k' * 1000) if n == 0 else f(n - 1)\n  except Exception as e: raise ValueError('v' * 1000) from e\nf(300)",
           "code_error", "output_limit")  # fmt: skip


@attack
def flood_result(a: Attack) -> None:
    done = a.ends("class R:\n  def __repr__(self): return 'r' * 50_000_000\nR()", "ok", "output_limit")
    assert sum(len(str(result)) for result in done["results"]) < 8_000_000


@attack
def flood_helper(a: Attack) -> None:
    a.ends(
        "import sandglass\nfor n in range(3000):\n  try: sandglass.keep(f'x{n}/**')\n  except ValueError: pass\n"
        "for n in range(300): sandglass.result({'n': 'r' * 10_000})", "ok", "output_limit", "code_error",
    )  # fmt: skip
    declared = a.call("GET", "/declarations", expect=200).json()["declarations"]
    assert len(declared) == MAX_DECLARATIONS, len(declared)
    a.ends("print('p' * 100)\ninput('q' * 5_000_000)", "code_error", "output_limit", "interrupted", timeout_s=10)


# ---------------------------------------------------------------- messages


@attack
def huge_message(a: Attack) -> None:
    a.run(RAW)
    done = a.ends(RAW + "whole('stream', b'{\"name\": \"stdout\", \"text\": \"' + b'z' * 99_999_700 + b'\"}')", "output_limit", "ok")
    assert len(done["stdout"]) < 5_000_000
    a.ends(RAW + "whole('display_data', b'{\"data\": {\"text/html\": \"' + b'z' * 80_000_000 + b'\"}, \"metadata\": {}}')", "output_limit", "ok")
    a.ends(RAW + "whole('comm_msg', b'{}', b'b' * 80_000_000)", "output_limit", "ok")


KINDS = ("stream", "display_data", "execute_result", "error", "status", "comm_msg", "comm_open", "clear_output", "execute_input", "update_display_data",
         "sandglass_result", "sandglass_keep", "sandglass_variables", "sandglass_error", "sandglass_unknown", "shutdown_reply")  # fmt: skip


@attack
def deep_message(a: Attack) -> None:
    """As content, as data, as metadata: in each kind that somebody reads on the way."""
    for depth in (40, 900, 5_000, 100_000):
        code = RAW + f"""
deep = b'[' * {depth} + b']' * {depth}
objects = b'{{"a":' * {depth} + b'1' + b'}}' * {depth}
for kind in {KINDS!r}:
    whole(kind, deep)
    whole(kind, objects)
    whole(kind, b'{{"data": {{"application/json": ' + deep + b'}}, "metadata": ' + objects + b', "name": "stdout", "text": "t", "value": ' + deep
        + b', "patterns": ' + deep + b', "variables": ' + deep + b', "mro": ' + deep + b', "execution_state": ' + deep + b'}}')
    raw(b"t", b"<IDS|MSG>", b"", header(kind), parent(), objects, b"{{}}")
    raw(b"t", b"<IDS|MSG>", b"", objects, parent(), b"{{}}", b"{{}}")
    raw(b"t", b"<IDS|MSG>", b"", header(kind), objects, b"{{}}", b"{{}}")
"""
        a.ends(code, "ok", "output_limit", "code_error")
    a.told()


@attack
def invalid_text(a: Attack) -> None:
    a.ends(r"print('\ud800 \x00 \udfff', flush=True); print(b'\xff\xfe'.decode('latin-1'))", "ok", "code_error")
    a.ends(r"from IPython.display import publish_display_data as p; p({'text/plain': '\ud800', '\udc00': '\x00'}, metadata={'\ud800': 1})", "ok", "code_error")
    a.ends(r"raise type('E\ud800', (Exception,), {})('\ud800\x00')", "code_error")
    a.ends(r"globals()['v\ud800'] = 1; globals()['\x00\n<b>'] = 2", "ok", "code_error")
    a.ends("import sandglass\n" r"for f, x in ((sandglass.keep, '\ud800'), (sandglass.keep, 'a\x00b'), (sandglass.result, {'\ud800': '\udfff'})):" "\n"
           "  try: f(x)\n  except Exception: pass", "ok")  # fmt: skip
    code = RAW + f"""
bad = [b'\\xff\\xfe', b'"\\\\ud800"', b'NaN', b'-Infinity', b'1e999', b'9' * 5000, b'null', b'"\\x00"', b'true', b'[]', b'{{}}']
for kind in {KINDS!r}:
    for b in bad:
        whole(kind, b'{{"name": ' + b + b', "text": ' + b + b'}}')
        whole(kind, b'{{"data": {{"text/plain": ' + b + b', "application/json": ' + b + b'}}, "metadata": {{"m": ' + b + b'}}, "transient": ' + b + b'}}')
        whole(kind, b'{{"ename": ' + b + b', "evalue": ' + b + b', "traceback": ' + b + b', "execution_state": ' + b + b', "execution_count": ' + b + b'}}')
        whole(kind, b'{{"value": ' + b + b', "patterns": ' + b + b', "variables": ' + b + b', "mro": ' + b + b', "errno": ' + b + b', "more": ' + b + b'}}')
        whole(kind, b'{{"variables": [{{"name": ' + b + b', "type": ' + b + b', "size": ' + b + b'}}], "patterns": [' + b + b'], "mro": [' + b + b']}}')
        whole(kind, b'{{"comm_id": ' + b + b', "target_name": ' + b + b', "code": ' + b + b', "wait": ' + b + b'}}')
        raw(b"t", b"<IDS|MSG>", b"", header(kind), parent(), b'{{"m": ' + b + b'}}', b"{{}}")
        raw(b"t", b"<IDS|MSG>", b"", b'{{"msg_id": ' + b + b', "msg_type": ' + b + b', "session": ' + b + b', "date": ' + b + b'}}', parent(), b"{{}}", b"{{}}")
        raw(b"t", b"<IDS|MSG>", b"", header(kind), b'{{"msg_id": ' + b + b'}}', b"{{}}", b"{{}}")
"""
    a.ends(code, "ok", "output_limit", "code_error")
    a.told()


@attack
def forged_messages(a: Attack) -> None:
    code = """
from IPython import get_ipython
import time
k = get_ipython().kernel
def say(kind, content, parent):
    k.session.send(k.iopub_socket, kind, content, parent=parent, ident=b"t")
mine = k.get_parent()
foreign = {"header": {"msg_id": "0" * 32, "session": "someone", "username": "bob", "msg_type": "execute_request"}, "msg_id": "0" * 32}
for parent in (mine, foreign, {}):
    for n in range(50):
        say("status", {"execution_state": "idle"}, parent); say("status", {"execution_state": "dead"}, parent)
        say("execute_reply", {"status": "ok", "execution_count": 99}, parent); say("shutdown_reply", {"restart": False}, parent)
        say("execute_input", {"code": "forged", "execution_count": 99}, parent); say("kernel_info_reply", {"banner": "forged"}, parent)
        say("stream", {"name": "stdout", "text": "forged"}, parent); say("sandglass_variables", {"variables": [], "more": 0}, parent)
        say("sandglass_error", {"mro": ["MemoryError"], "errno": 12}, parent); say("input_request", {"prompt": "password:", "password": True}, parent)
time.sleep(0.3)
print("the end")
"""
    a.fresh()
    done = a.ends(code, "ok", "output_limit")
    assert "the end" in done["stdout"], done["stdout"][-200:]
    executions = a.call("GET", "/executions", expect=200).json()["executions"]
    assert all(e["state"] == "finished" for e in executions)
    # a number that no database holds, in the true reply
    a.ends("get_ipython().execution_count = 10**30", "ok", "code_error")
    a.told()
    a.call("POST", "/restart", {}, expect=200)


# ---------------------------------------------------------------- what runs out


@attack
def words_timeout(a: Attack) -> None:
    a.fresh()
    a.ends("sum(iter(int, 1))", "timeout", timeout_s=1)


@attack
def words_memory(a: Attack) -> None:
    a.fresh()
    a.ends("x = []\nfor _ in range(64):\n  x.append(bytearray(1 << 24))\n  for n in range(0, 1 << 24, 4096): x[-1][n] = 1", "memory_limit")


@attack
def words_processes(a: Attack) -> None:
    a.fresh()
    done = a.run("import subprocess\nkept = []\nfor n in range(300): kept.append(subprocess.Popen(['sleep', '60']))")
    assert done["exit_reason"] == "process_limit", done
    a.call("POST", "/restart", {}, expect=200)
    a.ends("1", "ok")


@attack
def words_disk(a: Attack) -> None:
    a.fresh()
    a.ends("open('/workspace/big', 'wb').write(b'x' * (80 << 20))", "disk_limit")
