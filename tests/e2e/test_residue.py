"""Nothing of one user or session reaches the next, and after destruction nothing is left but what was declared. On the real engine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
import pytest
from e2e_gateway import DOCKER_HOST, Gateway

WORD = "planted" + "residue"
"""Put together, so that no code that is kept has it."""

PLANT = """
import ctypes, mmap, os, pathlib, socket, subprocess, sys, multiprocessing.shared_memory as shm
word = "planted" + "residue"
for place in ("/workspace", "/tmp", "/dev/shm", os.path.expanduser("~/.cache"), os.path.expanduser("~/.config")):
    os.makedirs(place, exist_ok=True)
    pathlib.Path(place, word + ".txt").write_text(word)
os.makedirs("/workspace/out", exist_ok=True)
pathlib.Path("/workspace/out/kept.txt").write_text("kept by declaration")
segment = shm.SharedMemory(name=word, create=True, size=4096); segment.buf[:len(word)] = word.encode()
listening = socket.socket(socket.AF_UNIX); listening.bind("\\0" + word); listening.listen()
named = socket.socket(socket.AF_UNIX); named.bind("/tmp/" + word + ".sock")
os.environ[word] = word
child = subprocess.Popen([sys.executable, "-c", "import os, time; os.setsid(); time.sleep(600)", word])
print(os.getuid(), child.pid)
"""
LOOK = """
import glob, json, os, socket, stat
word, found = "planted" + "residue", []
for top in ("/workspace", "/tmp", "/dev/shm", "/dev/mqueue", "/run", "/var", "/home", "/root", "/opt", "/srv", "/mnt"):
    for folder, folders, files in os.walk(top, onerror=lambda e: None):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            try:
                small = stat.S_ISREG(os.lstat(path).st_mode) and os.path.getsize(path) < 1 << 20
                if word in name or (small and word.encode() in open(path, "rb").read()):
                    found.append(path)
            except OSError:
                pass
processes = []
for path in glob.glob("/proc/[0-9]*"):
    for part in ("cmdline", "environ"):
        try:
            if word.encode() in open(f"{path}/{part}", "rb").read():
                processes.append(f"{path}/{part}")
        except OSError:
            pass
try:
    socket.socket(socket.AF_UNIX).connect("\\0" + word); reached = True
except OSError:
    reached = False
mine = [p for p in glob.glob("/proc/[0-9]*") if os.path.exists(p) and os.stat(p).st_uid == os.getuid()]
print(json.dumps({"files": found, "processes": processes, "reached": reached, "uid": os.getuid(), "mine": len(mine),
                  "names": [n for n in globals() if n in ("segment", "listening", "child")]}))
"""


def new(gateway: Gateway, profile: str, user: str) -> str:
    return str(gateway.call("POST", "/api/v1/sessions", {"profile": profile}, user=user, expect=201).json()["session_id"])


def run(gateway: Gateway, session_id: str, code: str, user: str) -> str:
    told = gateway.call("POST", f"/api/v1/sessions/{session_id}/executions?wait=120", {"code": code}, user=user, expect=200).json()
    assert told["exit_reason"] == "ok", told
    return str(told["stdout"])


def look(gateway: Gateway, session_id: str, user: str) -> dict[str, Any]:
    found = dict(json.loads(run(gateway, session_id, LOOK, user).strip().splitlines()[-1]))
    assert not found["files"] and not found["processes"] and not found["reached"] and not found["names"], found
    return found


@pytest.mark.parametrize("tier", ["container", "gvisor"])
def test_the_next_user_and_the_next_session_find_nothing(gateway: Gateway, tier: str) -> None:
    if tier not in gateway.available():
        pytest.skip(f"the profile {tier} is not available here")
    first = new(gateway, tier, "alice")
    uid, _ = map(int, run(gateway, first, PLANT, "alice").strip().splitlines()[-1].split())
    beside = new(gateway, tier, "bob")
    seen = look(gateway, beside, "bob")
    assert seen["uid"] != uid, "kernel-wide quotas are counted by uid"
    gateway.call("DELETE", f"/api/v1/sessions/{first}", user="alice", expect=202)
    gateway.wait_state(first, "ended")
    again = new(gateway, tier, "alice")
    assert look(gateway, again, "alice")["uid"] not in (uid, seen["uid"])
    # a recycle of the same session, too: only what was declared comes back
    run(gateway, again, PLANT, "alice")
    gateway.call("POST", f"/api/v1/sessions/{again}/recycle", user="alice", expect=202)
    gateway.wait_state(again, "dormant")
    look(gateway, again, "alice")
    assert "kept by declaration" in run(gateway, again, "print(open('/workspace/out/kept.txt').read())", "alice")
    for session_id, user in ((again, "alice"), (beside, "bob")):
        gateway.call("DELETE", f"/api/v1/sessions/{session_id}", user=user, expect=202)


def test_after_destruction_only_what_was_declared_is_left(start_gateway: Callable[..., Gateway]) -> None:
    gateway = start_gateway(SANDGLASS_POOL_TARGET="0")
    client = docker.APIClient(DOCKER_HOST, version="auto")
    root = Path(client.info()["DockerRootDir"])
    volumes = {v["Name"] for v in client.volumes()["Volumes"] or ()}
    session_id = new(gateway, "container", "alice")
    path = f"/api/v1/sessions/{session_id}"
    run(gateway, session_id, PLANT, "alice")
    admin = gateway.token("root", "t0", "admin")
    shown = gateway.call("GET", f"/api/v1/admin/sessions/{session_id}", token=admin, expect=200).json()
    (engine_id,) = (c["Id"] for c in client.containers(all=True) if any(shown["sandbox_id"] in name for name in c["Names"]))
    gateway.call("DELETE", path, expect=202)
    gateway.wait_state(session_id, "ended")
    deadline = time.monotonic() + 30
    while any(c["Id"] == engine_id for c in client.containers(all=True)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert {v["Name"] for v in client.volumes()["Volumes"] or ()} <= volumes
    if root.is_dir():
        left = [str(p) for part in ("containers", "image/overlay2/layerdb/mounts") for p in (root / part).glob(f"{engine_id}*")]
        assert not left, left
    assert engine_id not in Path("/proc/self/mountinfo").read_text()
    (artifact,) = gateway.call("GET", f"{path}/artifacts", expect=200).json()["artifacts"]
    assert artifact["path"] == "out/kept.txt"
    stored = [p for p in (gateway.state / "store").rglob("*") if p.is_file() and b"kept by declaration" in p.read_bytes()]
    assert len(stored) == 1
    gateway.call("DELETE", f"/api/v1/artifacts/{artifact['artifact_id']}", expect=204)
    gateway.call("DELETE", f"{path}/transcript", expect=204)
    deadline = time.monotonic() + 30
    while any(p.exists() for p in stored):
        assert time.monotonic() < deadline, "a deleted file's object goes, too"
        time.sleep(0.2)
    assert gateway.stop() == 0
    for word in (WORD.encode(), b"kept by declaration"):
        left = [str(p.relative_to(gateway.state)) for p in gateway.state.rglob("*") if p.is_file() and word in p.read_bytes()]
        assert not left, (word, left)
    client.close()
