"""The same without ``await``: each call is carried out by the asynchronous client, on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from .client import Sandglass
from .events import Event
from .gateway import Gateway
from .models import Declaration, Execution, File, Notice, Profile, Rebuild, Session
from .transport import Token

T = TypeVar("T")


class _Loop:
    """An event loop in a thread. A call that is broken off (Ctrl-C) is cancelled there, too."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sandglass-client", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                future.cancel()
                with suppress(CancelledError, Exception):
                    future.exception(10.0)
            raise

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10.0)
        self._loop.close()


async def _next(events: AsyncGenerator[Event]) -> Event | None:
    return await anext(events, None)


class SyncGateway:
    """``Gateway``: its lists."""

    def __init__(self, url: str | None = None, token: Token | None = None, **options: Any) -> None:
        self._gateway = Gateway(url, token, **options)

    def __enter__(self) -> Self:
        self._call = (loop := _Loop()).call
        self._stop = loop.stop
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._call(self._gateway.__aexit__(kind, error, trace))
        finally:
            self._stop()

    def profiles(self) -> list[Profile]:
        return self._call(self._gateway.profiles())

    def sessions(self, *, ended: bool = False, everyone: bool = False) -> list[Session]:
        return self._call(self._gateway.sessions(ended=ended, everyone=everyone))

    def end(self, session_id: str) -> Session:
        return self._call(self._gateway.end(session_id))

    def artifact(self, artifact_id: str) -> bytes:
        return self._call(self._gateway.artifact(artifact_id))


class SyncSandglass:
    """``Sandglass``, method by method: ``with SyncSandglass(url, token) as s: r = s.run("df.head()")``"""

    def __init__(self, url: str | None = None, token: Token | None = None, **options: Any) -> None:
        self._session = Sandglass(url, token, **options)

    def __enter__(self) -> Self:
        loop = _Loop()
        self._call, self._stop = loop.call, loop.stop
        try:
            self._call(self._session.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._call(self._session.__aexit__(kind, error, trace))
        finally:
            self._stop()

    @property
    def session(self) -> Session:
        return self._session.session

    @property
    def session_id(self) -> str:
        return self._session.session_id

    @property
    def generation(self) -> int:
        return self._session.generation

    def run(self, code: str, **options: Any) -> Execution:
        return self._call(self._session.run(code, **options))

    def stream(self, code: str, **options: Any) -> Iterator[Event]:
        events = self._session.stream(code, **options)
        try:
            while (event := self._call(_next(events))) is not None:
                yield event
        finally:
            self._call(events.aclose())

    def submit(self, code: str, **options: Any) -> Execution:
        return self._call(self._session.submit(code, **options))

    def execution(self, execution_id: str, *, wait_s: float = 0.0) -> Execution:
        return self._call(self._session.execution(execution_id, wait_s=wait_s))

    def wait(self, execution_id: str, timeout_s: float | None = None) -> Execution:
        return self._call(self._session.wait(execution_id, timeout_s))

    def full_output(self, execution: Execution) -> bytes:
        return self._call(self._session.full_output(execution))

    def cancel(self, execution_id: str) -> Execution:
        return self._call(self._session.cancel(execution_id))

    def refresh(self) -> Session:
        return self._call(self._session.refresh())

    def keep_alive(self) -> Session:
        return self._call(self._session.keep_alive())

    def interrupt(self) -> None:
        self._call(self._session.interrupt())

    def restart(self) -> Session:
        return self._call(self._session.restart())

    def recycle(self) -> Session:
        return self._call(self._session.recycle())

    def end(self) -> Session:
        return self._call(self._session.end())

    def notices(self) -> list[Notice]:
        return self._call(self._session.notices())

    def rebuild(self, cells: Sequence[str] | None = None, *, timeout_s: float | None = None, wait: bool = True) -> Rebuild:
        return self._call(self._session.rebuild(cells, timeout_s=timeout_s, wait=wait))

    def upload(self, source: bytes | str | os.PathLike[str], to: str = "", *, overwrite: bool = False) -> File:
        return self._call(self._session.upload(source, to, overwrite=overwrite))

    def download(self, path: str) -> bytes:
        return self._call(self._session.download(path))

    def download_to(self, path: str, to: str | os.PathLike[str]) -> str:
        return self._call(self._session.download_to(path, to))

    def files(self) -> list[File]:
        return self._call(self._session.files())

    def artifacts(self) -> list[File]:
        return self._call(self._session.artifacts())

    def delete_file(self, path: str) -> None:
        self._call(self._session.delete_file(path))

    def declare(self, pattern: str, *, keep: bool = True) -> Declaration:
        return self._call(self._session.declare(pattern, keep=keep))

    def undeclare(self, pattern: str) -> None:
        self._call(self._session.undeclare(pattern))

    def declarations(self) -> list[Declaration]:
        return self._call(self._session.declarations())
