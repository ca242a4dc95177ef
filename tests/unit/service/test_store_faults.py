"""A recycle and a restore while an S3 store fails, fills up, hangs, keeps half or lies: nothing declared is lost, and it is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.backends.s3_store import S3Store
from gateway.errors import StoreUnavailable
from gateway.service.storing import Patience
from tests import s3_faults as f
from tests.s3_faults import Proxy, proxy
from tests.s3_world import HURRIED, Bucket, settings, store_on, wait

from .harness import rig, until

FAULTS = {
    "down": ("*", f.drops),
    "hangs": ("put", f.hangs),
    "overloaded": ("put", f.answers(503, "SlowDown")),
    "full": ("put", f.answers(507, "XMinioStorageFull")),
    "keeps half": ("put", f.keeps_half),
    "lies about the size": ("head", f.says("content-length", "7")),
    "refuses the key": ("*", f.answers(403, "InvalidAccessKeyId")),
}


@pytest_asyncio.fixture
async def world(s3_server: str) -> AsyncIterator[tuple[Proxy, S3Store, Bucket]]:
    async with proxy(s3_server) as net:
        given = settings(net.endpoint)
        store = store_on(given)
        await store.open()
        wait(store, HURRIED)
        yield net, store, Bucket(replace(given, endpoint=s3_server))
        await store.close()


@pytest.mark.parametrize("name", FAULTS)
async def test_a_recycle_waits_for_the_store_and_tells(tmp_path: Path, world: tuple[Proxy, S3Store, Bucket], name: str) -> None:
    net, store, bucket = world
    async with rig(tmp_path, store=store) as r:
        access = await r.session()
        await r.run(access, "write:out/a.txt:one")
        await until(lambda: net.seen.count("put") == 1)  # the checkpoint
        await asyncio.sleep(0.2)
        await r.run(access, "write:out/a.txt:two!")
        net.fail(*FAULTS[name])
        access.recycle()
        await until(lambda: access.to_json()["state"] == "quarantined")
        assert len(await r.runtime.list(await r.records.instance_id())) == 1  # the sandbox is still there
        net.heal()
        await until(lambda: access.to_json()["state"] == "dormant", 20)
        assert {n["kind"] for n in await access.notices()} >= {"quarantined", "recycled"}
        assert b"".join([c async for c in access.read_file("out/a.txt")]) == b"two!"
        await r.run(access, "1")  # a new sandbox
        assert access.to_json()["restored_files"][0]["path"] == "out/a.txt"
        await store.check()
        assert bucket.uploads() == []
        assert all(name.startswith("objects/") for name in bucket.objects())


async def test_the_commit_of_a_large_file_has_its_time() -> None:
    """An S3 server copies it then; after a minute flat it would be tried again for an hour, and be lost."""
    patience = Patience()
    patience.store_s, patience.store_rate = 0.05, 1000
    await patience.of(asyncio.sleep(0.2), 1000)
    with pytest.raises(StoreUnavailable):
        await patience.of(asyncio.sleep(5))


async def test_a_file_altered_in_the_store_is_told_and_the_others_come_back(tmp_path: Path, world: tuple[Proxy, S3Store, Bucket]) -> None:
    net, store, _ = world
    async with rig(tmp_path, store=store) as r:
        access = await r.session()
        await r.run(access, "write:out/good.txt:good")
        await r.run(access, "write:out/odd.txt:odd!")
        access.recycle()
        await until(lambda: access.to_json()["state"] == "dormant", 20)

        async def odd(request: f.Message, forward: f.Forward) -> bytes:
            answer = await forward(request)
            answer.put("connection", "close")
            answer.body = answer.body.replace(b"odd!", b"even")
            return answer.encode()

        net.fail("get", odd)
        await r.run(access, "1")
        assert [one["path"] for one in access.to_json()["restored_files"]] == ["out/good.txt"]
        (told,) = [n for n in await access.notices() if n["kind"] == "restored"]
        assert "out/odd.txt" in json.dumps(told)
        net.heal()
        access.recycle()
        await until(lambda: access.to_json()["state"] == "dormant", 20)
        await r.run(access, "1")
        assert [one["path"] for one in access.to_json()["restored_files"]] == ["out/good.txt", "out/odd.txt"]


async def test_a_start_while_the_store_is_down_fails_typed_and_the_next_one_has_the_files(
    tmp_path: Path, world: tuple[Proxy, S3Store, Bucket]
) -> None:
    net, store, _ = world
    async with rig(tmp_path, store=store) as r:
        access = await r.session()
        await r.run(access, "write:out/a.txt:one")
        access.recycle()
        await until(lambda: access.to_json()["state"] == "dormant", 20)
        net.fail("*", f.drops)
        result = await r.run(access, "1")
        assert result["exit_reason"] == "platform_fault"
        assert "could not be restored" in json.dumps(result)
        net.heal()
        assert (await r.run(access, "1"))["exit_reason"] == "ok"
        assert [one["path"] for one in access.to_json()["restored_files"]] == ["out/a.txt"]
