"""The object store in a directory of this machine.

``objects/<key>=`` holds an object (``=`` is in no key, so that one key may be another's folder), ``uploads/`` what is
still being written. An upload becomes visible by a rename after its bytes are synced, and counts as stored after the
folder is synced too. An upload's file is locked while its writer lives: what is not locked was left by a process that
was killed, and ``open`` removes it, without touching the uploads of a gateway that is still running.

File calls block, so they run in a few threads of the store's own; a disk that hangs holds up nothing else.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import os
import secrets
import stat
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import ParamSpec, TypeVar

from ..domain.paths import check_key
from ..errors import NotFound, StoreUnavailable

CHUNK_BYTES = 256 * 1024
_THREADS = 4
_LISTED_AT_ONCE = 500
_END = "="

P = ParamSpec("P")
T = TypeVar("T")


class FilesystemStore:
    """``ports.ObjectStore`` in ``root``, made with mode 0700. ``min_free``: bytes that ``check`` wants to be free."""

    def __init__(self, root: Path, *, min_free: int = 64 * 1024**2) -> None:
        self._objects = root / "objects"
        self._uploads = root / "uploads"
        self._min_free = min_free
        self.errors = 0
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="store")

    async def open(self) -> None:
        """Make the folders, remove what killed uploads left. Raises StoreUnavailable."""
        await self._call(self._open)

    def _make_folders(self) -> None:
        for folder in (self._objects, self._uploads):
            _make_folder(folder)

    def _open(self) -> None:
        self._make_folders()
        for left in self._uploads.iterdir():
            with suppress(OSError):
                fd = os.open(left, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    left.unlink()
                finally:
                    os.close(fd)

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run it in a thread of ours; an OSError becomes StoreUnavailable."""
        try:
            with _errors():
                try:
                    future = asyncio.get_running_loop().run_in_executor(self._threads, partial(function, *args, **kwargs))
                except RuntimeError:
                    raise StoreUnavailable("The object store is closed.") from None
                return await future
        except StoreUnavailable:
            self.errors += 1
            raise

    # ------------------------------------------------------------------ objects

    def _path(self, key: str) -> Path:
        return self._objects / (check_key(key) + _END)

    async def writer(self, key: str) -> FileWriter:
        upload = FileWriter(self, self._uploads / secrets.token_hex(16), self._path(key), self._objects)
        try:
            await self._call(upload.begin)
        except BaseException:
            self._later(upload.give_up)  # a cancelled call may still be making the file
            raise
        return upload

    async def read(self, key: str) -> AsyncIterator[bytes]:
        reader = _Reader()
        try:
            left = await self._call(reader.open, self._path(key))
            while left:
                data = await self._call(reader.read, min(left, CHUNK_BYTES))
                if not data:
                    raise StoreUnavailable("An object is shorter than it was.")
                left -= len(data)
                yield data
        finally:
            self._later(reader.close)

    def _later(self, function: Callable[[], None]) -> None:
        """Without waiting, for cleaning up when the caller was cancelled."""
        try:
            self._threads.submit(function)
        except RuntimeError:
            function()

    async def stat(self, key: str) -> int:
        return await self._call(_size, self._path(key))

    async def delete(self, key: str) -> None:
        await self._call(self._delete, self._path(key))

    def _delete(self, path: Path) -> None:
        try:
            path.unlink()
        except (FileNotFoundError, NotADirectoryError):
            return
        with suppress(FileNotFoundError):
            _sync(path.parent)
        # Folders that became empty go too; one that a writer needs just now is made again by its commit.
        for folder in path.parents:
            if folder == self._objects:
                break
            try:
                folder.rmdir()
            except OSError:
                break

    async def list(self, prefix: str) -> AsyncIterator[str]:
        """In the order of their bytes, as an S3 bucket lists them."""
        keys = _walk(self._objects, prefix)
        while batch := await self._call(list, islice(keys, _LISTED_AT_ONCE)):
            for key in batch:
                yield key

    async def check(self) -> None:
        await self._call(self._check)

    def _check(self) -> None:
        self._make_folders()
        probe = self._uploads / f"check-{secrets.token_hex(8)}"
        fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, b"x")
        finally:
            os.close(fd)
            probe.unlink(missing_ok=True)
        space = os.statvfs(self._objects)
        if space.f_bavail * space.f_frsize < self._min_free:
            raise StoreUnavailable("The object store is nearly full.")


class FileWriter:
    """``ports.ObjectWriter``. The lock makes a call wait for one that runs on in its thread after a cancellation."""

    def __init__(self, store: FilesystemStore, upload: Path, path: Path, top: Path) -> None:
        self._store = store
        self._upload, self._path, self._top = upload, path, top
        self._lock = threading.Lock()
        self._fd = -1
        self._over = False
        self._size = 0
        self._digest = hashlib.sha256()

    async def write(self, data: bytes) -> None:
        await self._store._call(self._write, data)

    async def commit(self) -> str:
        """When it is cancelled, the object may be there all the same."""
        return await self._store._call(self._commit)

    async def abort(self) -> None:
        """Fine at any time; after ``commit`` it does nothing."""
        await self._store._call(self.give_up)

    # ------------------------------------------------------------------ in a thread

    def begin(self) -> None:
        with self._lock:
            if self._over:
                return
            _make_folder(self._upload.parent)
            self._fd = os.open(self._upload, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def give_up(self) -> None:
        with self._lock:
            if not self._over:
                with suppress(OSError):
                    self._upload.unlink(missing_ok=True)
            self._end()

    def _write(self, data: bytes) -> None:
        with self._lock:
            self._must_be_open()
            self._digest.update(data)
            self._size += len(data)
            view = memoryview(data)
            while view:
                view = view[os.write(self._fd, view) :]

    def _commit(self) -> str:
        with self._lock:
            self._must_be_open()
            os.fsync(self._fd)
            if os.fstat(self._fd).st_size != self._size:
                raise StoreUnavailable("The object store did not keep what it was given.")
            self._rename()
            _sync(self._path.parent)
            self._end()
            return self._digest.hexdigest()

    def _rename(self) -> None:
        for _ in range(5):
            # A deletion may take a folder away before the rename, when it was empty.
            with suppress(FileNotFoundError):
                _make_folder(self._path.parent, self._top)
                self._upload.rename(self._path)
                return
        raise StoreUnavailable("An upload's file went away.")

    def _must_be_open(self) -> None:
        if self._over:
            raise StoreUnavailable("The upload is over.")

    def _end(self) -> None:
        self._over = True
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class _Reader:
    """An open object. The lock keeps a late read off a descriptor that was closed and may be another file's by now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fd = -1
        self._over = False

    def open(self, path: Path) -> int:
        """Returns its size."""
        with self._lock:
            if self._over:
                return 0
            with _missing():
                self._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            return os.fstat(self._fd).st_size

    def read(self, size: int) -> bytes:
        with self._lock:
            return b"" if self._over else os.read(self._fd, size)

    def close(self) -> None:
        with self._lock:
            self._over = True
            if self._fd >= 0:
                os.close(self._fd)


def _size(path: Path) -> int:
    with _missing():
        found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise NotFound("There is no such object.")
    return found.st_size


def _walk(top: Path, prefix: str) -> Iterator[str]:
    folder, _, stem = prefix.rpartition("/")
    if folder:
        top = top / check_key(folder)
    yield from _walk_folder(top, folder + "/" if folder else "", stem)


def _walk_folder(folder: Path, before: str, stem: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as found:
            names = [entry.name + "/" if entry.is_dir(follow_symlinks=False) else entry.name for entry in found]
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in sorted(name.removesuffix(_END) for name in names if name.endswith((_END, "/"))):
        if not name.startswith(stem):
            continue
        if name.endswith("/"):
            yield from _walk_folder(folder / name, before + name, "")
        else:
            yield before + name


def _make_folder(folder: Path, top: Path | None = None) -> None:
    """With its parents, all with mode 0700; below ``top`` each new name is synced, for an object must not lose it."""
    if folder.is_dir():
        return
    _make_folder(folder.parent, top)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if top is not None and folder != top:
        _sync(folder.parent)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _missing() -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        if exc.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise NotFound("There is no such object.") from None
        raise


@contextmanager
def _errors() -> Iterator[None]:
    """The one map from the system's errors to ours; no path is told."""
    try:
        yield
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StoreUnavailable("The object store is full.") from exc
        reason = os.strerror(exc.errno or errno.EIO)
        raise StoreUnavailable(f"The object store cannot be read or written ({reason}).") from exc
