"""A sandbox's files in memory, and the file streams over them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
OPEN, DATA, END, CREDIT, ABORT = 1, 2, 3, 4, 5
CREDIT_BYTES = 1024 * 1024
CHUNK = 256 * 1024


class FakeFiles:
    """``roots``: ``workspace`` and ``in``, each path -> (bytes, mtime in ns). ``limit``: bytes in the workspace."""

    def __init__(self, limit: int = 512 * 1024**2) -> None:
        self.roots: dict[str, dict[str, tuple[bytes, int]]] = {"workspace": {}, "in": {}}
        self.limit = limit
        self.fail_next = ""
        """An error code with which the next operation ends (``io``, ``changed``...)."""
        self.sent_bytes = 0
        """Of file contents, sent to the gateway so far."""
        self._ticks = 1_800_000_000_000_000_000

    def write(self, root: str, path: str, data: bytes) -> bool:
        """False when the disk is full."""
        files = self.roots[root]
        others = sum(len(content) for name, (content, _) in files.items() if name != path)
        if others + len(data) > self.limit:
            return False
        self._ticks += 1_000_000
        files[path] = (data, self._ticks)
        return True


class FakeFileStream:
    """One operation. ``send(type, data)`` goes to the gateway. Credit counts both ways, as in the protocol."""

    def __init__(self, files: FakeFiles, send: Callable[[int, bytes], None]) -> None:
        self._files = files
        self._send = send
        self._command: Json = {}
        self._out: list[bytes] = []
        self._result: Json = {}
        self._credit = CREDIT_BYTES
        self._taken = bytearray()
        self.over = False

    def take(self, kind: int, data: bytes) -> None:
        if self.over:
            return
        if kind == OPEN:
            self._open(json.loads(data))
        elif kind == CREDIT:
            self._credit += int.from_bytes(data, "little")
            self._pump()
        elif kind == DATA:
            self._taken += data
            self._send(CREDIT, len(data).to_bytes(4, "little"))
        elif kind == END:
            self._put()
        elif kind == ABORT:
            self.over = True

    def _open(self, command: Json) -> None:
        self._command = command
        if self._files.fail_next:
            code, self._files.fail_next = self._files.fail_next, ""
            self._end({"ok": False, "error": code})
            return
        what = command.get("cmd")
        root = self._files.roots.get(command.get("root", "workspace"), {})
        path = str(command.get("path", ""))
        if what in ("get", "put", "delete") and any(part in ("", ".", "..") for part in path.split("/")):
            self._end({"ok": False, "error": "path_refused"})
        elif what == "list":
            self._list(root, int(command.get("max_entries", 10_000)))
        elif what == "get":
            self._get(root, path, int(command.get("max_bytes", 1 << 40)))
        elif what == "delete":
            found = root.pop(path, None)
            self._end({"ok": True} if found else {"ok": False, "error": "not_found"})
        elif what == "usage":
            usage = {
                name: {"bytes": sum(len(d) for d, _ in files.values()), "inodes": len(files), "bytes_limit": self._files.limit}
                for name, files in self._files.roots.items()
            }
            self._end({"ok": True, **usage})
        elif what != "put":
            self._end({"ok": False, "error": "io", "detail": "unknown command"})

    def _list(self, root: dict[str, tuple[bytes, int]], most: int) -> None:
        names = sorted(root)
        for name in names[:most]:
            data, mtime = root[name]
            line = {"path": name, "kind": "file", "size": len(data), "mtime_ns": mtime}
            self._out.append(json.dumps(line).encode() + b"\n")
        self._result = {"ok": True, "entries": min(len(names), most), "truncated": len(names) > most}
        self._pump()

    def _get(self, root: dict[str, tuple[bytes, int]], path: str, most: int) -> None:
        if path not in root:
            self._end({"ok": False, "error": "not_a_file" if any(p.startswith(path + "/") for p in root) else "not_found"})
            return
        data = root[path][0]
        if len(data) > most:
            self._end({"ok": False, "error": "too_large"})
            return
        self._out = [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]
        self._result = {"ok": True, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        self._pump()

    def _put(self) -> None:
        data = bytes(self._taken)
        digest = hashlib.sha256(data).hexdigest()
        path = str(self._command.get("path", ""))
        if self._command.get("sha256") not in (None, "", digest):
            self._end({"ok": False, "error": "hash_mismatch"})
        elif not self._command.get("overwrite") and path in self._files.roots[self._command.get("root", "workspace")]:
            self._end({"ok": False, "error": "exists"})
        elif not self._files.write(self._command.get("root", "workspace"), path, data):
            self._end({"ok": False, "error": "disk_full"})
        else:
            self._end({"ok": True, "size": len(data), "sha256": digest})

    def _pump(self) -> None:
        while self._out and self._credit >= len(self._out[0]):
            piece = self._out.pop(0)
            self._credit -= len(piece)
            if self._command.get("cmd") == "get":
                self._files.sent_bytes += len(piece)
            self._send(DATA, piece)
        if not self._out:
            self._end(self._result)

    def _end(self, result: Json) -> None:
        if not self.over:
            self.over = True
            self._send(END, json.dumps(result).encode())
