"""What only the store on a disk has: modes, killed uploads, a full disk, cancellations."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.backends.filesystem_store import FilesystemStore
from gateway.errors import NotFound, StoreUnavailable

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[FilesystemStore]:
    made = FilesystemStore(tmp_path, min_free=0)
    await made.open()
    yield made
    await made.close()


def uploads(root: Path) -> list[Path]:
    return list((root / "uploads").iterdir())


def modes(root: Path, *, folders: bool) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in root.rglob("*") if path.is_dir() is folders}


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_files_are_private(store: FilesystemStore, tmp_path: Path) -> None:
    writer = await store.writer("a/b/c")
    await writer.commit()
    assert modes(tmp_path, folders=True) == {0o700}
    assert modes(tmp_path, folders=False) == {0o600}


CHILD = """
import asyncio, sys
from pathlib import Path
from gateway.backends.filesystem_store import FilesystemStore

async def main():
    store = FilesystemStore(Path(sys.argv[1]))
    await store.open()
    done = await store.writer("done")
    await done.write(b"d" * 1000)
    await done.commit()
    writer = await store.writer("half/done")
    await writer.write(b"x" * 100_000)
    print("ready", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def start_child(root: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", CHILD, str(root)], stdout=subprocess.PIPE, text=True)


async def test_a_killed_upload_is_removed_at_the_next_start_and_a_running_one_is_not(tmp_path: Path) -> None:
    with start_child(tmp_path) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        beside = FilesystemStore(tmp_path, min_free=0)
        await beside.open()
        mine = await beside.writer("mine")
        assert len(uploads(tmp_path)) == 2
        child.send_signal(signal.SIGKILL)
        child.wait(timeout=10)
    successor = FilesystemStore(tmp_path, min_free=0)
    await successor.open()
    assert len(uploads(tmp_path)) == 1
    assert [key async for key in successor.list("")] == ["done"]
    assert await successor.stat("done") == 1000
    await mine.commit()
    assert uploads(tmp_path) == []
    for each in (beside, successor):
        await each.close()


async def test_a_full_disk_is_a_typed_error(store: FilesystemStore, tmp_path: Path) -> None:
    writer = await store.writer("a")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, before[1]))
    try:
        with pytest.raises(StoreUnavailable, match="full"):
            for _ in range(10):
                await writer.write(bytes(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    # What was half written must not become an object.
    with pytest.raises(StoreUnavailable):
        await writer.commit()
    await writer.abort()
    assert uploads(tmp_path) == []
    with pytest.raises(NotFound):
        await store.stat("a")


async def test_a_nearly_full_disk_fails_the_check(tmp_path: Path) -> None:
    store = FilesystemStore(tmp_path, min_free=1 << 60)
    with pytest.raises(StoreUnavailable, match="nearly full"):
        await store.check()
    await store.close()


async def test_a_root_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    store = FilesystemStore(tmp_path / "file" / "store")
    for attempt in (store.open, store.check):
        with pytest.raises(StoreUnavailable) as caught:
            await attempt()
        assert str(tmp_path) not in caught.value.detail
    await store.close()


async def test_a_link_is_no_object(store: FilesystemStore, tmp_path: Path) -> None:
    (tmp_path / "objects" / "a=").symlink_to("/etc/passwd")
    with pytest.raises(NotFound):
        await store.stat("a")
    with pytest.raises(NotFound):
        await anext(store.read("a"))


async def test_an_object_cut_behind_our_back_is_no_silent_end(store: FilesystemStore, tmp_path: Path) -> None:
    writer = await store.writer("a")
    await writer.write(bytes(600_000))
    await writer.commit()
    chunks = store.read("a")
    await anext(chunks)
    os.truncate(tmp_path / "objects" / "a=", 300_000)
    with pytest.raises(StoreUnavailable):
        while True:
            await anext(chunks)


async def test_cancellations_leave_neither_files_nor_descriptors(store: FilesystemStore, tmp_path: Path) -> None:
    writer = await store.writer("big")
    await writer.write(bytes(3_000_000))
    await writer.commit()
    before = descriptors()

    async def upload() -> None:
        writer = await store.writer("x")
        try:
            while True:
                await writer.write(bytes(300_000))
        finally:
            await writer.abort()

    async def download() -> None:
        while True:
            async for _ in store.read("big"):
                pass

    for number in range(20):
        tasks = [asyncio.ensure_future(work()) for work in (upload, download)]
        await asyncio.sleep(0.001 * number)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for _ in range(100):
        if descriptors() == before and not uploads(tmp_path):
            break
        await asyncio.sleep(0.02)
    assert descriptors() == before
    assert uploads(tmp_path) == []


async def test_a_closed_store(store: FilesystemStore) -> None:
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.stat("a")
