"""The file helper: one file operation for the gateway, in a process of its own, with the user's (or the relay's) rights.

It talks to the relay over a socket in packets of u8 type, u32 length, data; types and commands are those of FILE messages in
``docs/stream-protocol.md``. Paths are walked segment by segment from a directory descriptor that init has held from the start, each
segment opened with O_NOFOLLOW: no link is ever followed, and what the user renames meanwhile leads nowhere but to the user's own
files. openat2 would do it in one call; gVisor does not have it, and one way that holds everywhere is better than two. And never
O_DIRECTORY beside O_NOFOLLOW: gVisor follows links then.
"""

import errno
import hashlib
import json
import os
import secrets
import stat
import struct

OPEN, DATA, END = 1, 2, 3
CHUNK = 64 * 1024
MAX_PACKET = 1024 * 1024
MAX_SEGMENTS = 64
MAX_PATH = 4096
MAX_ENTRIES = 200_000
TEMPORARY = ".sandglass-"
_PACKET = struct.Struct("<BI")
# non-blocking: opening a FIFO must not wait for a writer
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class Refused(Exception):
    """``code`` as in the document."""

    def __init__(self, code, detail=""):
        super().__init__(detail)
        self.code = code


class Gone(Exception):
    """The relay has closed the socket: the operation is not wanted any more."""


_CODES = {
    errno.ENOENT: "not_found", errno.ENOTDIR: "not_found", errno.ELOOP: "path_refused", errno.ENOSPC: "disk_full",
    errno.EDQUOT: "disk_full", errno.EACCES: "path_refused", errno.EPERM: "path_refused", errno.EROFS: "path_refused",
    errno.ENAMETOOLONG: "path_refused", errno.EISDIR: "not_a_file", errno.EEXIST: "exists", errno.ENOTEMPTY: "not_empty",
    errno.EFBIG: "too_large", errno.ENXIO: "not_a_file",
}  # fmt: skip


class Relay:
    """Packets from and to the relay."""

    def __init__(self, sock):
        self.sock = sock

    def send(self, kind, data):
        try:
            self.sock.sendall(_PACKET.pack(kind, len(data)))
            self.sock.sendall(data)
        except OSError:
            raise Gone from None

    def _exactly(self, count):
        data = bytearray()
        while len(data) < count:
            piece = self.sock.recv(min(count - len(data), CHUNK))
            if not piece:
                raise Gone
            data += piece
        return bytes(data)

    def receive(self):
        kind, length = _PACKET.unpack(self._exactly(_PACKET.size))
        if length > MAX_PACKET:
            raise Gone
        return kind, self._exactly(length)


def segments(path):
    """Raises ``Refused`` for anything but a plain relative path."""
    if type(path) is not str or not 0 < len(path) <= MAX_PATH or "\0" in path:
        raise Refused("path_refused", "a path has 1 to 4096 characters")
    parts = path.split("/")
    if len(parts) > MAX_SEGMENTS or any(part in ("", ".", "..") for part in parts):
        raise Refused("path_refused", "a path is relative and has no empty or dotted parts")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise Refused("path_refused", "a path is UTF-8") from None
    return parts


def open_in(directory, name):
    """A descriptor of ``name`` and what it is. Raises ``Refused`` for a link, also where the runtime would follow it."""
    said = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISLNK(said.st_mode):
        raise Refused("path_refused", "links are not followed")
    fd = os.open(name, _READ, dir_fd=directory)
    info = os.fstat(fd)
    if (info.st_dev, info.st_ino) != (said.st_dev, said.st_ino):
        os.close(fd)
        raise Refused("changed", "it was replaced while it was opened")
    return fd, info


def descend(root, parts, *, make=False):
    """A descriptor of the directory that ``parts`` name below ``root``; the caller closes it."""
    here = os.dup(root)
    for part in parts:
        try:
            if make:
                try:
                    os.mkdir(part, 0o755, dir_fd=here)
                except FileExistsError:
                    pass
            below, info = open_in(here, part)
        finally:
            os.close(here)
        here = below
        if not stat.S_ISDIR(info.st_mode):
            os.close(here)
            raise Refused("path_refused" if make else "not_found", "a part of the path is a file")
    return here


def identity(info):
    return info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def list_files(relay, root, command):
    most = min(max(int(command.get("max_entries", 10_000)), 1), MAX_ENTRIES)
    device = os.fstat(root).st_dev
    out, count, truncated, unreadable = bytearray(), 0, False, 0
    stack = [(os.dup(root), "", None)]
    while stack:
        directory, prefix, names = stack.pop()
        try:
            if names is None:
                try:
                    names = sorted(os.listdir(directory), reverse=True)
                except OSError:
                    unreadable += 1
                    names = []
            while names:
                name = names.pop()
                if prefix == "" and name.startswith(TEMPORARY):
                    continue
                try:
                    path = (prefix + name).encode().decode()
                    info = os.stat(name, dir_fd=directory, follow_symlinks=False)
                except UnicodeEncodeError:
                    unreadable += 1  # a name that is not UTF-8 cannot be asked for
                    continue
                except OSError:
                    continue  # it went away, or its directory may not be searched
                if count >= most or len(stack) > MAX_SEGMENTS:
                    truncated = True
                    names = []
                    break
                count += 1
                mode = info.st_mode
                kind = "file" if stat.S_ISREG(mode) else "dir" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "other"
                line = {"path": path, "kind": kind, "size": info.st_size, "mtime_ns": info.st_mtime_ns}
                out += json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
                if len(out) >= CHUNK:
                    relay.send(DATA, bytes(out))
                    out.clear()
                if kind == "dir" and info.st_dev == device and len(path) < MAX_PATH:
                    try:
                        below, _ = open_in(directory, name)
                    except (OSError, Refused):
                        unreadable += 1
                        continue
                    # this directory is gone on with after the one below it
                    stack.append((directory, prefix, names))
                    stack.append((below, path + "/", None))
                    directory = None
                    break
        finally:
            if directory is not None:
                os.close(directory)
    if out:
        relay.send(DATA, bytes(out))
    return {"entries": count, "truncated": truncated, "unreadable": unreadable}


def get(relay, root, command):
    *parents, name = segments(command.get("path"))
    most = int(command.get("max_bytes", 2**62))
    directory = descend(root, parents)
    fd, before = open_in(directory, name)
    if not stat.S_ISREG(before.st_mode):
        raise Refused("not_a_file")
    if before.st_size > most:
        raise Refused("too_large", f"it has {before.st_size} bytes")
    digest, size = hashlib.sha256(), 0
    while data := os.read(fd, CHUNK):
        size += len(data)
        if size > most:
            raise Refused("too_large", "it grew past the limit while it was read")
        digest.update(data)
        relay.send(DATA, data)
    if identity(os.fstat(fd)) != identity(before) or size != before.st_size:
        raise Refused("changed", "it changed while it was read")
    return {"size": size, "sha256": digest.hexdigest()}


def put(relay, root, command):
    *parents, name = segments(command.get("path"))
    size, overwrite, wanted = command.get("size"), command.get("overwrite") is True, command.get("sha256")
    if type(size) is not int or size < 0:
        raise Refused("io", "put needs the size")
    directory = descend(root, parents, make=True)
    check_target(directory, name, overwrite)
    space = os.fstatvfs(directory)
    if space.f_blocks and size > space.f_bavail * space.f_frsize:
        raise Refused("disk_full", f"{space.f_bavail * space.f_frsize} bytes are free")
    temporary = f"{TEMPORARY}{secrets.token_hex(8)}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=directory)
    try:
        digest, written = hashlib.sha256(), 0
        while True:
            kind, data = relay.receive()
            if kind == END:
                break
            written += len(data)
            if written > size:
                raise Refused("io", "more bytes than were announced")
            digest.update(data)
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
        if written != size:
            raise Refused("io", f"{written} bytes came, {size} were announced")
        if wanted and digest.hexdigest() != wanted:
            raise Refused("hash_mismatch")
        if overwrite:
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        else:
            # a link fails where the name is taken, which a rename would not
            os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
            os.unlink(temporary, dir_fd=directory)
        temporary = None
    finally:
        if temporary is not None:
            os.unlink(temporary, dir_fd=directory)
    return {"size": written, "sha256": digest.hexdigest()}


def check_target(directory, name, overwrite):
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if not overwrite:
        raise Refused("exists", "a file of that name exists")
    if stat.S_ISDIR(mode):
        raise Refused("not_a_file", "it is a directory")


def delete(relay, root, command):
    *parents, name = segments(command.get("path"))
    directory = descend(root, parents)
    if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
        os.rmdir(name, dir_fd=directory)
    else:
        os.unlink(name, dir_fd=directory)
    return {}


def usage(roots):
    result = {}
    for name, root in roots.items():
        info = os.fstatvfs(root)
        result[name] = {
            "bytes": (info.f_blocks - info.f_bfree) * info.f_frsize, "bytes_limit": info.f_blocks * info.f_frsize,
            "inodes": info.f_files - info.f_ffree, "inodes_limit": info.f_files,
        }  # fmt: skip
    return result


def run(relay, roots):
    kind, data = relay.receive()
    if kind != OPEN:
        raise Refused("io", "the first packet is the command")
    command = json.loads(data)
    if command["cmd"] == "usage":
        return usage(roots)
    root = roots.get(command.get("root"))
    what = {"list": list_files, "get": get, "put": put, "delete": delete}.get(command["cmd"])
    if root is None or what is None:
        raise Refused("io", "unknown root or command")
    info = os.fstat(root)
    if info.st_uid == os.geteuid() and info.st_mode & 0o700 != 0o700:
        os.fchmod(root, stat.S_IMODE(info.st_mode) | 0o700)  # the user locked the workspace, by mistake or not
    return what(relay, root, command)


def serve(sock, workspace, inputs):
    """One operation; returns the process's exit status."""
    relay = Relay(sock)
    try:
        result = {"ok": True, **run(relay, {"workspace": workspace, "in": inputs})}
    except Gone:
        return 0
    except Refused as error:
        result = {"ok": False, "error": error.code, "detail": str(error)}
    except OSError as error:
        result = {"ok": False, "error": _CODES.get(error.errno, "io"), "detail": error.strerror or ""}
    except (ValueError, TypeError, KeyError, RecursionError):
        result = {"ok": False, "error": "io", "detail": "the command makes no sense"}
    try:
        relay.send(END, json.dumps(result).encode())
    except Gone:
        pass
    return 0
