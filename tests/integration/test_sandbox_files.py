"""File operations in a real sandbox: whole or not at all, no link followed, nothing that blocks."""

from __future__ import annotations

import hashlib
import os
import time

import pytest

from tests.integration.sandbox_client import Sandbox
from tests.integration.sandbox_fixtures import engine, new_sandbox, runtime, shared

__all__ = ["engine", "new_sandbox", "runtime", "shared"]


@pytest.fixture(autouse=True)
def tidy(shared: Sandbox) -> None:
    shared.execute(
        "import os, shutil, stat\nos.chmod('/workspace', 0o755); os.chdir('/workspace')\nfor n in os.listdir('.'):\n  if n not in ('in', 'out'):\n"
        "    shutil.rmtree(n) if os.path.isdir(n) and not os.path.islink(n) else os.unlink(n)"
    )
    for name in shared.list("in")[0]:
        shared.file({"cmd": "delete", "root": "in", "path": name})


def test_upload_is_whole_and_read_only_to_the_user(shared: Sandbox) -> None:
    data = os.urandom(3_000_001)
    digest = hashlib.sha256(data).hexdigest()
    end = shared.put("sales ä 売.csv", data)
    assert end == {"ok": True, "size": len(data), "sha256": digest}
    code = "import hashlib, os\np = '/workspace/in/sales ä 売.csv'\n"
    code += "print(hashlib.sha256(open(p, 'rb').read()).hexdigest(), os.stat(p).st_uid == os.getuid())\n"
    assert shared.execute(code).text == f"{digest} False\n"
    for attempt in (
        "open(p, 'a')",
        "os.unlink(p)",
        "os.rename(p, p + 'x')",
        "os.chmod(p, 0o777)",
        "open('/workspace/in/new', 'w')",
        "os.mkdir('/workspace/in/d')",
    ):
        reply = shared.execute(attempt).reply
        assert reply is not None and reply.get("ename") == "PermissionError", attempt
    assert shared.get("sales ä 売.csv", "in") == (data, end)


def test_a_second_upload_of_the_same_name_is_refused_unless_it_says_so(shared: Sandbox) -> None:
    assert shared.put("a.txt", b"one")["ok"]
    assert shared.put("a.txt", b"two")["error"] == "exists"
    assert shared.get("a.txt", "in")[0] == b"one"
    assert shared.put("a.txt", b"three", overwrite=True)["ok"]
    assert shared.get("a.txt", "in")[0] == b"three"
    assert set(shared.list("in")[0]) == {"a.txt"}


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "", ".", "a//b", "a\0b", "./a", "a/", "x/" * 100 + "y", "\ud800"])
def test_paths_that_lead_elsewhere_are_refused(shared: Sandbox, path: str) -> None:
    if path == "\ud800":
        return  # cannot be said in UTF-8, so not on the wire either
    assert shared.put(path, b"x", "workspace")["error"] == "path_refused"
    assert shared.get(path)[1]["error"] == "path_refused"
    assert shared.file({"cmd": "delete", "root": "workspace", "path": path})[1]["error"] == "path_refused"


def test_no_link_is_followed_anywhere(shared: Sandbox) -> None:
    shared.execute(
        "import os\nos.symlink('/etc/hostname', 'l'); os.symlink('/etc', 'd'); os.mkdir('real')\n"
        "open('real/f', 'w').write('x'); os.symlink('real', 'inside')\n"
        "os.symlink('/tmp/target', 'dangling')"
    )
    for path in ("l", "d/hostname", "inside/f", "dangling"):
        assert shared.get(path)[1]["error"] == "path_refused", path
    for path in ("d/new", "inside/new"):
        assert shared.put(path, b"x", "workspace")["error"] == "path_refused", path
    # a link as the last part is replaced, not written through
    assert shared.put("dangling", b"mine", "workspace")["error"] == "exists"
    assert shared.put("dangling", b"mine", "workspace", overwrite=True)["ok"]
    assert shared.execute("print(os.path.islink('dangling'), os.path.exists('/tmp/target'))").text == "False False\n"
    found, _ = shared.list()
    assert found["l"]["kind"] == "link" and found["d"]["kind"] == "link" and found["real/f"] == {**found["real/f"], "kind": "file", "size": 1}
    assert "d/hostname" not in found and "inside/f" not in found


def test_what_is_no_file_is_not_read_and_does_not_block(shared: Sandbox) -> None:
    shared.execute("import os, socket\nos.mkfifo('fifo'); s = socket.socket(socket.AF_UNIX); s.bind('sock'); os.mkdir('dir')")
    began = time.monotonic()
    for path in ("fifo", "sock", "dir", "in"):
        assert shared.get(path)[1]["error"] == "not_a_file", path
    assert shared.get("nothing")[1]["error"] == "not_found"
    assert shared.get("dir/nothing")[1]["error"] == "not_found"
    assert time.monotonic() - began < 20
    found, end = shared.list()
    assert found["fifo"]["kind"] == "other" and found["dir"]["kind"] == "dir" and end["ok"] and not end["truncated"]
    assert shared.put("dir", b"", "workspace", overwrite=True)["error"] == "not_a_file"


def test_sizes_hashes_and_limits_are_checked(shared: Sandbox) -> None:
    assert shared.file({"cmd": "put", "root": "in", "path": "short", "size": 10}, b"123")[1]["error"] == "io"
    assert shared.file({"cmd": "put", "root": "in", "path": "long", "size": 1}, b"123")[1]["error"] == "io"
    assert shared.put("bad", b"123", sha256="0" * 64)["error"] == "hash_mismatch"
    assert shared.list("in")[0] == {}
    shared.execute("open('big', 'wb').write(b'x' * 1000)")
    assert shared.get("big", max_bytes=999)[1]["error"] == "too_large"
    assert len(shared.get("big", max_bytes=1000)[0]) == 1000
    huge = 2**40
    assert shared.file({"cmd": "put", "root": "in", "path": "huge", "size": huge}, b"")[1]["error"] == "disk_full"


def test_a_full_disk_is_told_and_leaves_no_half_file(shared: Sandbox) -> None:
    usage = shared.file({"cmd": "usage"})[1]
    free = usage["in"]["bytes_limit"] - usage["in"]["bytes"]
    assert 0 < free < 2**30
    # the announced size fits, the inodes or bytes do not: fill up in between
    shared.execute(
        "import os\nst = os.statvfs('.'); f = open('fill', 'wb')\ntry:\n  while True: f.write(b'x' * 2**20); f.flush()\nexcept OSError: pass",
        timeout=120,
    )
    assert shared.put("out/report", b"y" * 5_000_000, "workspace")["error"] == "disk_full"
    assert set(shared.list()[0]) == {"in", "out", "fill"}
    shared.execute("f.close(); os.unlink('fill')")
    assert shared.put("out/sub/report", b"y" * 5_000_000, "workspace")["ok"]
    assert shared.file({"cmd": "delete", "root": "workspace", "path": "out"})[1]["error"] == "not_empty"
    assert shared.file({"cmd": "delete", "root": "workspace", "path": "out/sub/report"})[1]["ok"]
    assert shared.file({"cmd": "delete", "root": "workspace", "path": "out/sub"})[1]["ok"]


def test_a_file_that_changes_while_it_is_read_is_refused(shared: Sandbox) -> None:
    cell = shared.execute_nowait(
        "import time, os\nopen('moving', 'wb').write(b'a' * 20_000_000)\nend = time.time() + 60\n"
        "while not os.path.exists('stop') and time.time() < end:\n"
        "  with open('moving', 'ab') as f: f.write(b'b')\n  time.sleep(0.0005)"
    )
    shared.wait(lambda: shared.list()[0].get("moving", {"size": 0})["size"] > 20_000_000, "the file")
    assert shared.get("moving")[1].get("error") in ("changed", "too_large")
    assert shared.put("stop", b"", "workspace")["ok"]
    shared.wait(lambda: cell.done, "the writer")
    assert shared.get("moving")[1]["ok"]


def test_listing_is_bounded_and_survives_odd_names(shared: Sandbox) -> None:
    shared.execute(
        "import os\nfor i in range(300): open(f'f{i:03}', 'w').close()\nopen(b'bad\\xff', 'w').close()\nopen('new\\nline', 'w').close()\n"
        "os.mkdir('shut'); open('shut/x', 'w').close(); os.chmod('shut', 0)\np = 'deep'\nfor _ in range(100):\n  os.mkdir(p); p += '/d'"
    )
    found, end = shared.list(max_entries=50)
    assert len(found) == 50 and end["truncated"]
    found, end = shared.list()
    assert "new\nline" in found and "f299" in found and "shut" in found and "shut/x" not in found
    assert end["truncated"] and end["unreadable"] >= 2  # deeper than is walked
    shared.execute("os.chmod('shut', 0o755)")


def test_the_user_cannot_lock_the_gateway_out(shared: Sandbox) -> None:
    shared.execute("os.chmod('/workspace', 0)")
    assert shared.put("while-locked", b"1")["ok"]
    assert shared.put("mine", b"2", "workspace")["ok"]
    assert "mine" in shared.list()[0]


def test_user_processes_cannot_disturb_a_helper(shared: Sandbox) -> None:
    shared.put("out/large", os.urandom(2_000_000), "workspace", overwrite=True)
    bully = shared.execute_nowait(
        "import os, time, signal\nend = time.time() + 3\nme = os.getpid()\nhit = set()\nwhile time.time() < end:\n  for p in os.listdir('/proc'):\n"
        "    if p.isdigit() and int(p) != me:\n      try: os.kill(int(p), signal.SIGSTOP); hit.add(int(p))\n      except OSError: pass\nprint(hit)"
    )
    for _ in range(5):
        assert shared.get("out/large")[1]["ok"]
    shared.wait(lambda: bully.done, "the bully")
    assert bully.text == "set()\n"


def test_many_operations_at_once_and_aborts(shared: Sandbox) -> None:
    shared.put("out/large", os.urandom(4_000_000), "workspace", overwrite=True)
    streams = range(900_000, 900_012)
    for stream in streams:
        shared.file_message(stream, 1, b'{"cmd": "get", "root": "workspace", "path": "out/large", "max_bytes": 100000000}')
    shared.wait(lambda: sum(any(k == 3 for k, _ in shared.files.get(s, [])) for s in streams) >= 4, "refusals")
    busy = [s for s in streams if any(k == 3 and b"busy" in d for k, d in shared.files.get(s, []))]
    assert len(busy) in (4, 5), "eight slots, one of which an operation that has just ended may still hold"
    # the others wait for credit: no more than that was sent
    time.sleep(0.5)
    shared.pump(0.1)
    for stream in set(streams) - set(busy):
        assert sum(len(d) for k, d in shared.files.get(stream, []) if k == 2) <= 1024 * 1024
        shared.file_message(stream, 5, b"")
    shared.wait(lambda: shared.get("out/large")[1].get("ok"), "a free slot")


def test_a_new_gateway_starts_afresh(shared: Sandbox) -> None:
    shared.file_message(910_000, 1, b'{"cmd": "put", "root": "in", "path": "half", "size": 100}')
    shared.file_message(910_000, 2, b"12345")
    shared.pump(0.3)
    shared.detach()
    shared.reattach()
    shared.wait(lambda: shared.list("in")[0] == {}, "the half file to go")
    shared.wait(lambda: shared.put("half", b"whole").get("ok"), "a slot: the old helpers may take a moment to be gone")


def test_speed(shared: Sandbox) -> None:
    data = os.urandom(50_000_000)
    began = time.monotonic()
    assert shared.put("large", data)["ok"]
    middle = time.monotonic()
    assert shared.get("large", "in")[0] == data
    print(f"put {50 / (middle - began):.0f} MB/s, get {50 / (time.monotonic() - middle):.0f} MB/s")
