"""What every object store does, the fake and the real one alike."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.backends.filesystem_store import FilesystemStore
from gateway.backends.s3_settings import Patience
from gateway.backends.s3_store import S3Store
from gateway.errors import NotFound, PathRefused, StoreUnavailable
from gateway.ports import ObjectStore
from gateway.testing.stores import MemoryStore
from tests.s3_world import settings, store_on

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture(params=["memory", "filesystem", "s3"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ObjectStore]:
    made: MemoryStore | FilesystemStore | S3Store
    if request.param == "memory":
        made = MemoryStore()
    elif request.param == "filesystem":
        made = FilesystemStore(tmp_path / "state" / "store", min_free=0)
    else:
        made = store_on(settings(request.getfixturevalue("s3_server")), patience=Patience())
    await made.open()
    yield made
    await made.close()


async def put(store: ObjectStore, key: str, data: bytes) -> str:
    writer = await store.writer(key)
    await writer.write(data)
    return await writer.commit()


async def get(store: ObjectStore, key: str) -> bytes:
    return b"".join([chunk async for chunk in store.read(key)])


async def keys(store: ObjectStore, prefix: str = "") -> list[str]:
    return [key async for key in store.list(prefix)]


async def test_what_is_committed_comes_back(store: ObjectStore) -> None:
    data = bytes(range(256)) * 4000
    writer = await store.writer("t/u/a.bin")
    for begin in range(0, len(data), 100_000):
        await writer.write(data[begin : begin + 100_000])
    assert await writer.commit() == hashlib.sha256(data).hexdigest()
    assert await get(store, "t/u/a.bin") == data
    assert await store.stat("t/u/a.bin") == len(data)


async def test_chunks_are_bounded(store: ObjectStore) -> None:
    await put(store, "a", bytes(700_000))
    assert [len(chunk) async for chunk in store.read("a")] == [262144, 262144, 175712]


async def test_an_empty_object(store: ObjectStore) -> None:
    writer = await store.writer("empty")
    assert await writer.commit() == hashlib.sha256().hexdigest()
    assert await get(store, "empty") == b""
    assert await store.stat("empty") == 0


async def test_nothing_is_visible_before_the_commit(store: ObjectStore) -> None:
    writer = await store.writer("a/b")
    await writer.write(b"x")
    with pytest.raises(NotFound):
        await store.stat("a/b")
    assert await keys(store) == []
    await writer.commit()
    assert await keys(store) == ["a/b"]


async def test_an_aborted_upload_leaves_nothing(store: ObjectStore) -> None:
    await put(store, "a", b"old")
    writer = await store.writer("a")
    await writer.write(b"new")
    await writer.abort()
    await writer.abort()
    assert await get(store, "a") == b"old"
    with pytest.raises(StoreUnavailable):
        await writer.write(b"more")
    with pytest.raises(StoreUnavailable):
        await writer.commit()


async def test_an_abort_after_the_commit_takes_nothing_back(store: ObjectStore) -> None:
    writer = await store.writer("a")
    await writer.write(b"x")
    await writer.commit()
    await writer.abort()
    assert await get(store, "a") == b"x"


async def test_a_second_object_of_that_key_replaces_the_first(store: ObjectStore) -> None:
    await put(store, "a", b"first")
    await put(store, "a", b"second one")
    assert await get(store, "a") == b"second one"
    assert await keys(store) == ["a"]


async def test_what_is_not_there(store: ObjectStore) -> None:
    await put(store, "a/b", b"x")
    for key in ("nothing", "a", "a/b/c", "a/c"):
        with pytest.raises(NotFound):
            await store.stat(key)
        with pytest.raises(NotFound):
            await get(store, key)
        await store.delete(key)
    assert await keys(store) == ["a/b"]


async def test_a_key_may_be_anothers_folder(store: ObjectStore) -> None:
    for key in ("a/b/c", "a", "a/b"):
        await put(store, key, key.encode())
    await store.delete("a/b/c")
    assert await get(store, "a/b") == b"a/b"
    assert await keys(store) == ["a", "a/b"]


async def test_lists_are_ordered_and_by_any_beginning(store: ObjectStore) -> None:
    names = ["a", "a/b", "a-b", "a.c", "a/bc/d", "a/be", "b/a", "A/b", "a0"]
    for name in names:
        await put(store, name, b"")
    assert await keys(store) == sorted(names)
    for prefix in ("a", "a/", "a/b", "a/bc/", "a/bc/d", "a/bc/d/", "z", "a/z/", "b/"):
        assert await keys(store, prefix) == sorted(name for name in names if name.startswith(prefix))


async def test_long_lists(store: ObjectStore) -> None:
    names = [f"p/{number % 7}/{number:05d}" for number in range(1200)]
    for name in names:
        if isinstance(store, MemoryStore):
            store.objects[name] = b""
        elif isinstance(store, FilesystemStore):
            path = store._path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        elif isinstance(store, S3Store):
            store.client.put(store.settings.key("objects", name), b"", "", "")
    assert await keys(store, "p/") == sorted(names)


async def test_delete(store: ObjectStore) -> None:
    await put(store, "a/b/c", b"x")
    await store.delete("a/b/c")
    await store.delete("a/b/c")
    with pytest.raises(NotFound):
        await store.stat("a/b/c")
    assert await keys(store) == []
    await put(store, "a/b/c", b"y")
    assert await get(store, "a/b/c") == b"y"


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/a",
        "a/",
        "a//b",
        "../a",
        "a/../b",
        ".",
        "a/.",
        "a b",
        "a\0",
        "é",
        "a\\b",
        "a=",
        "x" * 201,
        "a/" * 256 + "a",
    ],
)
async def test_a_bad_key_is_refused_everywhere(store: ObjectStore, key: str) -> None:
    with pytest.raises(PathRefused):
        await store.writer(key)
    with pytest.raises(PathRefused):
        await get(store, key)
    with pytest.raises(PathRefused):
        await store.stat(key)
    with pytest.raises(PathRefused):
        await store.delete(key)


@pytest.mark.parametrize("prefix", ["../", "/etc/", "a/../../"])
async def test_a_list_stays_inside(store: ObjectStore, prefix: str) -> None:
    with pytest.raises(PathRefused):
        await keys(store, prefix)


async def test_many_uploads_at_once_beside_deletions(store: ObjectStore) -> None:
    async def one(number: int) -> None:
        key = f"t/u/{number % 5}/{number}"
        await put(store, key, b"%d" % number * 1000)
        assert await get(store, key) == b"%d" % number * 1000
        await store.delete(key)

    await asyncio.gather(*(one(number) for number in range(60)))
    assert await keys(store) == []


async def test_a_reader_has_the_object_it_began_with(store: ObjectStore) -> None:
    await put(store, "a", b"1" * 600_000)
    chunks = store.read("a")
    first = await anext(chunks)
    await put(store, "a", b"2" * 10)
    await store.delete("a")
    assert first + b"".join([chunk async for chunk in chunks]) == b"1" * 600_000


async def test_check(store: ObjectStore) -> None:
    await store.check()
    assert await keys(store) == []
