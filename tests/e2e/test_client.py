"""The Python client against a real gateway and real kernels."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest
import sandglass_client as sg
from e2e_gateway import ROOT, Gateway

PROFILE = "container"


async def test_steps_on_a_state_and_what_the_code_does_wrong(gateway: Gateway) -> None:
    told: list[sg.Notice] = []
    async with sg.Sandglass(gateway.url, gateway.token(), profile=PROFILE, name="steps", on_notice=told.append) as s:
        r = await s.run("df = 41\nprint('out')\ndf + 1")
        assert r.ok and r.stdout == "out\n" and r.result is not None and r.result.text == "42" and r.text == "out\n42"
        assert r.session.session_id == s.session_id and r.generation == s.generation == 1
        for code, reason, action in (
            ("1/0", "code_error", "fix_code"), ("def (", "syntax_error", "fix_code"), ("import nonesuch", "dependency_missing", "fix_code"),
        ):  # fmt: skip
            r = await s.run(code)
            assert (r.status, r.exit_reason, r.next_action) == ("error", reason, action) and r.error is not None and r.error.traceback
            with pytest.raises(sg.ExecutionFailed, match=reason):
                r.check()
        long = await s.submit("import time; time.sleep(60)")
        waiting = await s.submit("print('never')")
        assert not long.finished and waiting.position == 1
        await s.cancel(waiting.execution_id)
        await s.interrupt()
        assert (await s.wait(long.execution_id)).exit_reason == (await s.wait(waiting.execution_id)).exit_reason == "interrupted"
        assert "df" in [v.name for v in (await s.refresh()).variables]
        assert (await s.keep_alive()).state == "active"

        await s.restart()
        assert s.generation == 2 and not told, "a restart by oneself is answered; its notices come with what follows"
        with pytest.raises(sg.GenerationMismatch) as caught:
            await s.run("df", expect_generation=1)
        assert "df" in caught.value.lost_variables and caught.value.generation == 2
        rebuilt = await s.rebuild()
        assert rebuilt.state == "done" and "df" in rebuilt.back, rebuilt
        assert (await s.run("df", expect_generation=2)).text == "41"
        assert [n for n in await s.notices() if n.is_loss and "df" in [v.name for v in n.variables]]
        ids = [n.notice_id for n in told]
        assert ids and len(ids) == len(set(ids))
        session_id = s.session_id
    async with sg.Gateway(gateway.url, gateway.token()) as g:
        assert (await g.session(session_id)).state in ("draining", "ended"), "the block ends what it began"
        assert PROFILE in [p.name for p in await g.profiles() if p.available]
        with pytest.raises(sg.NotFound):
            await g.session("nobodys")
    async with sg.Gateway(gateway.url, gateway.token("bob")) as g:
        with pytest.raises(sg.NotFound):
            await g.session(session_id)
    async with sg.Gateway(gateway.url, "no token") as g:
        with pytest.raises(sg.Unauthenticated):
            await g.sessions()


async def test_files(gateway: Gateway, tmp_path: Path) -> None:
    data = bytes(range(256)) * 8000
    (tmp_path / "big é%.bin").write_bytes(data)
    async with sg.Sandglass(gateway.url, gateway.token(), profile=PROFILE) as s:
        up = await s.upload(tmp_path / "big é%.bin")
        assert (up.path, up.size, up.sha256) == ("in/big é%.bin", len(data), hashlib.sha256(data).hexdigest()) and up.stored
        with pytest.raises(sg.Conflict):
            await s.upload(data, "big é%.bin")
        await s.upload(b"two", "note.txt", overwrite=True)
        with pytest.raises(sg.ArtifactRejected) as refused:
            await s.upload(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(20_000), "table.csv")
        assert refused.value.extra["rule"] == "type_mismatch"
        with pytest.raises(sg.PathRefused):
            await s.declare("/etc/*")
        assert (await s.declare("kept.txt")).pattern == "kept.txt"
        r = await s.run("n = len(open('in/big é%.bin', 'rb').read()); open('kept.txt', 'w').write('kept'); n")
        assert r.check().text == str(len(data))
        assert await s.download("in/big é%.bin") == data
        generation = s.generation
        await s.recycle()
        r = await s.run("print(open('kept.txt').read())")
        assert r.stdout == "kept\n" and s.generation == generation + 1
        kinds = {n.kind: n for n in r.notices}
        assert "n" in [v.name for v in kinds["variables_lost"].variables] and "kept.txt" in kinds["restored"].files
        digest = await s.download_to("kept.txt", tmp_path)
        assert (tmp_path / "kept.txt").read_text() == "kept" and digest == hashlib.sha256(b"kept").hexdigest()
        with pytest.raises(sg.NotFound):
            await s.download_to("nowhere.txt", tmp_path / "x")
        assert sorted(p.name for p in tmp_path.iterdir()) == ["big é%.bin", "kept.txt"], "nothing half is left"
        kept = [f for f in await s.files() if f.path == "kept.txt"]
        assert kept and kept[0].declared and kept[0].stored
        artifact = next(a for a in await s.artifacts() if a.path == "kept.txt")
        await s.undeclare("kept.txt")
        assert "kept.txt" not in [d.pattern for d in await s.declarations()]
    async with sg.Gateway(gateway.url, gateway.token()) as g:
        assert await g.artifact(artifact.artifact_id) == b"kept"


async def test_a_stream_tells_everything_in_order(gateway: Gateway) -> None:
    code = """
from IPython.display import display
import sys
for n in range(200): print(n)
print("err", file=sys.stderr)
h = display("first", display_id="x"); h.update("second")
"value"
"""
    async with sg.Sandglass(gateway.url, gateway.token(), profile=PROFILE) as s:
        found = [event async for event in s.stream(code)]
        assert [e.type for e in found if e.type in ("started", "result", "done")] == ["started", "result", "done"]
        assert "".join(e.text for e in found if isinstance(e, sg.Stdout)).split() == [str(n) for n in range(200)]
        assert [(e.output.text, e.update) for e in found if isinstance(e, sg.Display)] == [("'first'", False), ("'second'", True)]
        last = found[-1]
        assert isinstance(last, sg.Done) and last.execution.ok and last.execution.stderr == "err\n"
        # an early end leaves the code running, and a session takes the next one
        async with aclosing(s.stream("import time; print('x', flush=True); time.sleep(0.5); y = 1")) as events:
            async for event in events:
                if isinstance(event, sg.Stdout):
                    break
        assert (await s.run("y")).text == "1"
        dead = [event async for event in s.stream("import os; os.kill(os.getpid(), 9)")]
        done = dead[-1]
        assert isinstance(done, sg.Done) and done.execution.lost and done.execution.exit_reason == "kernel_died"


async def test_a_gateway_that_is_killed_in_the_middle_is_waited_for(start_gateway: Callable[..., Gateway]) -> None:
    """A stream, and a call that waits: nothing is lost, told twice or run twice."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    gateway = start_gateway(SANDGLASS_PORT=port)
    token = gateway.token()
    async with sg.Sandglass(gateway.url, token, profile=PROFILE) as s, sg.Sandglass(gateway.url, token, profile=PROFILE) as other:
        await other.run("count = 0")
        waiting = asyncio.ensure_future(other.run("import time; time.sleep(12); count += 1; count", timeout_s=60))
        texts: list[str] = []
        async for event in s.stream("import time\nfor n in range(60): print(n, flush=True); time.sleep(0.1)", timeout_s=60):
            if isinstance(event, sg.Stdout):
                texts.append(event.text)
                if len(texts) == 10:
                    await asyncio.to_thread(gateway.kill)
                    await asyncio.to_thread(gateway.start)
        assert "".join(texts).split() == [str(n) for n in range(60)]
        assert isinstance(event, sg.Done) and event.execution.stdout.split() == [str(n) for n in range(60)]
        assert (await waiting).text == "1"


def test_a_full_gateway_and_the_synchronous_twin(start_gateway: Callable[..., Gateway]) -> None:
    gateway = start_gateway(SANDGLASS_SANDBOXES="1")
    with sg.SyncSandglass(gateway.url, gateway.token(), profile=PROFILE) as first:
        assert first.run("x = 1\nx").text == "1"
        with sg.SyncSandglass(gateway.url, gateway.token("bob"), profile=PROFILE, patience_s=60.0) as second:
            assert second.run("1", patience_s=0.0).exit_reason == "capacity_exhausted"
            assert [s.session_id for s in _sessions(gateway)] == [first.session_id]
            first.upload(b"sync", "a.txt")
            assert first.download("in/a.txt") == b"sync" and first.files()
            events = list(first.stream("print('a'); 2"))
            assert [e.type for e in events][-1] == "done" and "a\n" in [e.text for e in events if isinstance(e, sg.Stdout)]
            left = first.stream("print('b', flush=True); import time; time.sleep(0.2)")
            assert next(e for e in left if isinstance(e, sg.Stdout)).text == "b\n"
            left.close()  # type: ignore[attr-defined]
            first.end()
            assert second.run("2").text == "2", "it was waited for"
    with pytest.raises(sg.NotFound), sg.SyncSandglass(gateway.url, gateway.token(), session_id="nobodys"):
        pass


def _sessions(gateway: Gateway) -> list[sg.Session]:
    with sg.SyncGateway(gateway.url, gateway.token()) as g:
        return g.sessions()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("agent", ["ok ''", "code_error: ", "ok '3.875'", "refused: lost ", "rebuild ", "ok '7.75'"]),
        ("stream", ["queued", "started", "0\n1\n2", "result 2", "done ok"]),
        ("files", ["uploaded in/sales.csv", "total 42", "after the loss 42", "restored: "]),
    ],
)
def test_the_examples(gateway: Gateway, name: str, said: list[str]) -> None:
    env = {**os.environ, "SANDGLASS_URL": gateway.url, "SANDGLASS_TOKEN": gateway.token("examples")}
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    at = 0
    for words in said:
        at = done.stdout.find(words, at)
        assert at >= 0, (words, done.stdout)
