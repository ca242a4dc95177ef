"""One SQLite connection: opening, migrating, and turning its errors into ours.

Calls are made on the event loop's thread and do not wait for anything but the page cache: in WAL mode with
``synchronous=NORMAL`` a commit is a few ``write`` calls and no sync, which outlives ``kill -9``. Measured on two busy
cores, median: 0.14 ms for a session with thirty variables, 0.10 ms for an execution; a thread hand-over costs as much
and would let calls overtake each other. What does sync, the checkpoint (moving the log into the file), is done by a
thread with a connection of its own. Another process that holds the file locked makes a call wait ``BUSY_MS`` at most.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ..errors import BadRequest, Conflict, RecordsUnavailable, SandglassError
from .records_schema import MIGRATIONS, READABLE_SINCE

BUSY_MS = 250
_CHECKPOINT_EVERY = 400
"""Writes between two checkpoints: the log stays at a few MiB. Where writing never pauses it grows to the next bound."""
_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0
_LOG_PAGES = 20_000
"""Past so many pages (80 MiB) a writer does the checkpoint itself."""
_CHECK_UP_TO = 64 * 1024**2
"""A file up to this size is checked whole when it is opened (some 50 ms for 10 MiB)."""

Row = tuple[Any, ...]


class Database:
    """``path`` is a file; its folder is made. Every method raises RecordsUnavailable, a broken constraint Conflict."""

    def __init__(self, path: Path, migrations: Sequence[str] = MIGRATIONS, readable_since: int = READABLE_SINCE) -> None:
        self._path = path
        self._migrations = migrations
        self._readable_since = readable_since
        self._connection: sqlite3.Connection | None = None
        self._checkpoints: _Checkpoints | None = None
        self.errors = 0
        """Statements that failed because the file did not serve."""

    def open(self) -> None:
        """Connect, check, migrate. Nothing is changed in a file that is refused."""
        if self._connection is not None:
            return
        with self._errors():
            self._make_file()
            self._connection = _connect(self._path)
        try:
            self._prepare()
            with self._errors():
                self._checkpoints = _Checkpoints(_connect(self._path))
        except BaseException:
            self.close()
            raise

    def _make_file(self) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # SQLite gives the files beside it (-wal, -shm) the mode of the database.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._path.chmod(0o600)

    def _prepare(self) -> None:
        known = len(self._migrations)
        version = int(self.one("PRAGMA user_version")[0])
        if version > known and self._readable_from() > known:
            raise RecordsUnavailable(
                f"The records have schema {version}; this release knows {known} and cannot use them. Install the newer "
                "release again, or restore the records from before the upgrade."
            )
        if self.one("PRAGMA journal_mode = WAL")[0] != "wal":
            raise RecordsUnavailable("The records need a local file system: this one cannot share memory.")
        for pragma in ("synchronous = NORMAL", "foreign_keys = ON", f"wal_autocheckpoint = {_LOG_PAGES}"):
            self.run(f"PRAGMA {pragma}")
        if self._path.stat().st_size <= _CHECK_UP_TO:
            verdict = self.one("PRAGMA quick_check(1)")[0]
            if verdict != "ok":
                raise _damaged()
        for number in range(version, known):
            self._migrate(number)

    def _readable_from(self) -> int:
        row = self.first("SELECT value FROM meta WHERE key = 'readable_since'")
        return int(row[0]) if row is not None else 1

    def _migrate(self, number: int) -> None:
        with self.transaction():
            # Another gateway may have been faster.
            if int(self.one("PRAGMA user_version")[0]) > number:
                return
            for statement in self._migrations[number].split(";\n"):
                if statement.strip():
                    self.run(statement)
            self.run(
                "INSERT INTO meta VALUES ('readable_since', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (str(self._readable_since),),
            )
            self.run(f"PRAGMA user_version = {number + 1}")

    def close(self) -> None:
        if self._checkpoints is not None:
            self._checkpoints.close()
            self._checkpoints = None
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    # ------------------------------------------------------------------ statements

    def run(self, sql: str, values: Iterable[object] = ()) -> int:
        """How many rows it changed."""
        with self._errors():
            changed = self._open_connection().execute(sql, tuple(values)).rowcount
        self._wrote()
        return changed

    def insert(self, sql: str, values: Iterable[object] = ()) -> int:
        """The new row's number."""
        with self._errors():
            number = self._open_connection().execute(sql, tuple(values)).lastrowid or 0
        self._wrote()
        return number

    def returning(self, sql: str, values: Iterable[object] = ()) -> Row:
        """The one row that an INSERT ... RETURNING gives."""
        row = self.one(sql, values)
        self._wrote()
        return row

    def _wrote(self) -> None:
        if self._checkpoints is not None:
            self._checkpoints.count()

    def all(self, sql: str, values: Iterable[object] = ()) -> list[Row]:
        with self._errors():
            return self._open_connection().execute(sql, tuple(values)).fetchall()

    def each(self, sql: str, values: Iterable[object] = ()) -> Generator[Row]:
        """One after the other, as many as are asked for; close it before the next statement writes to these rows."""
        with self._errors():
            yield from self._open_connection().execute(sql, tuple(values))

    def first(self, sql: str, values: Iterable[object] = ()) -> Row | None:
        rows = self.all(sql, values)
        return rows[0] if rows else None

    def one(self, sql: str, values: Iterable[object] = ()) -> Row:
        """For a statement that always has a row."""
        return self.all(sql, values)[0]

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything in it, or nothing; nobody else writes meanwhile."""
        self.run("BEGIN IMMEDIATE")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            with contextlib.suppress(RecordsUnavailable):
                if self._open_connection().in_transaction:
                    self.run("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeEncodeError, OverflowError, OSError) as exc:
            error = _ours(exc)
            self.errors += isinstance(error, RecordsUnavailable)
            raise error from exc

    def _open_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            raise RecordsUnavailable("The records are not open.")
        return self._connection


class _Checkpoints:
    """Moves the log into the file now and then, in a thread, for that waits for the disk."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="records-checkpoint")
        self._closing = threading.Event()
        self._writes = 0
        self._running = False

    def count(self) -> None:
        self._writes += 1
        if self._writes >= _CHECKPOINT_EVERY and not self._running:
            self._writes, self._running = 0, True
            self._thread.submit(self._run)

    def _run(self) -> None:
        """Passive: takes what it can without holding up the writer.

        The log begins anew only when all of it was taken, so this tries again until nothing was written meanwhile.
        """
        try:
            # A full disk is told by the next write.
            with contextlib.suppress(sqlite3.Error):
                pause = _PAUSE_S
                while not self._closing.wait(pause):
                    before = self._writes
                    _, there, taken = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                    if taken >= there and self._writes == before:
                        return
                    pause = min(2 * pause, _LONGEST_PAUSE_S)
        finally:
            self._running = False

    def close(self) -> None:
        """Waits for one that runs."""
        self._closing.set()
        self._thread.shutdown()
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()


def _connect(path: Path) -> sqlite3.Connection:
    # The check for the thread is off: each connection is used by one thread at a time, which need not be its maker's.
    return sqlite3.connect(path, timeout=BUSY_MS / 1000, isolation_level=None, check_same_thread=False)


def _damaged() -> RecordsUnavailable:
    error = RecordsUnavailable("The records' file is damaged. Restore it from a copy, or move it away to start anew.")
    error.retry_after = None
    return error


def _ours(exc: Exception) -> SandglassError:
    """The one total map from SQLite's and the system's errors to ours; no path and no statement is told."""
    if isinstance(exc, sqlite3.IntegrityError):
        return Conflict("The records refuse this: it refers to what is not there, or is there already.")
    if isinstance(exc, sqlite3.DatabaseError):
        code = getattr(exc, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return _damaged()
        words = {
            sqlite3.SQLITE_BUSY: "The records are locked by another program.",
            sqlite3.SQLITE_LOCKED: "The records are locked by another program.",
            sqlite3.SQLITE_FULL: "The disk that holds the records is full.",
            sqlite3.SQLITE_READONLY: "The records may not be written.",
            sqlite3.SQLITE_PERM: "The records may not be opened.",
            sqlite3.SQLITE_CANTOPEN: "The records cannot be opened.",
            sqlite3.SQLITE_IOERR: "The disk that holds the records fails, or is full.",
        }
        return RecordsUnavailable(words.get(code, f"The records do not serve ({type(exc).__name__})."))
    if isinstance(exc, OSError):
        return RecordsUnavailable(f"The records cannot be opened ({os.strerror(exc.errno or errno.EIO)}).")
    return BadRequest("A value is not valid Unicode, or a number too large to be recorded.")
