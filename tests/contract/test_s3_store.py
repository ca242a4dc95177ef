"""What only the S3 store has: a network that breaks, a server that fails, fills up or lies, bounded memory, leftovers."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import sys
import traceback
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
import pytest_asyncio
import urllib3.exceptions
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from minio.error import InvalidResponseError, MinioException, S3Error, ServerError

from gateway.backends.s3_errors import failure_of
from gateway.backends.s3_settings import Patience
from gateway.backends.s3_store import S3Store
from gateway.backends.s3_writer import PART_BYTES, S3Writer
from gateway.errors import Conflict, NotFound, SandglassError, StoreUnavailable
from gateway.testing.clock import ManualClock
from tests import s3_faults as f
from tests.s3_faults import Proxy, proxy
from tests.s3_world import HURRIED, QUICK, SECRET, Bucket, serve, settings, store_on, wait

pytestmark = pytest.mark.asyncio
PART = 5 * 1024 * 1024
"""The smallest that S3 takes for a part that is not the last."""
SMALL = bytes(range(256)) * 2500
LARGE = bytes(range(256)) * ((2 * PART + 700_000) // 256)


class World:
    def __init__(self, net: Proxy, endpoint: str) -> None:
        self.net = net
        self.settings = settings(net.endpoint)
        self.store = store_on(self.settings, part_bytes=PART)
        self.direct = replace(self.settings, endpoint=endpoint)
        self.bucket = Bucket(self.direct)

    def fail_for_good(self, kind: str, fault: f.Fault) -> None:
        self.net.fail(kind, fault)
        wait(self.store, HURRIED)

    def heal(self) -> None:
        self.net.heal()
        wait(self.store, QUICK)

    def nothing_is_left(self, *, objects: int = 0) -> None:
        """No object but those that were committed, no parts, nothing in between."""
        found = self.bucket.objects()
        assert len([name for name in found if name.startswith("objects/")]) == objects, found
        assert len(found) == objects, found
        assert self.bucket.uploads() == []


@pytest_asyncio.fixture
async def world(s3_server: str) -> AsyncIterator[World]:
    async with proxy(s3_server) as net:
        made = World(net, s3_server)
        await made.store.open()
        yield made
        await made.store.close()


async def put(store: S3Store, key: str, data: bytes) -> str:
    """As the keeper does it: abort after whatever went wrong."""
    writer = await store.writer(key)
    try:
        for begin in range(0, len(data), 1_000_000):
            await writer.write(data[begin : begin + 1_000_000])
        return await writer.commit()
    except BaseException:
        await writer.abort()
        raise


async def get(store: S3Store, key: str) -> bytes:
    return b"".join([chunk async for chunk in store.read(key)])


async def listed(world: World) -> list[str]:
    """What others see at this moment, whatever this store's requests meet."""
    other = store_on(world.direct)
    try:
        return await keys(other)
    finally:
        await other.close()


async def keys(store: S3Store) -> list[str]:
    return [key async for key in store.list("")]


PASSING = {
    "drop": f.drops,
    "lost answer": f.drops_the_answer,
    "500": f.answers(500, "InternalError"),
    "503": f.answers(503, "SlowDown"),
    "502 of a proxy": f.answers(502),
}


@pytest.mark.parametrize("name", PASSING)
@pytest.mark.parametrize("kind", ["put", "head", "get", "list", "delete"])
async def test_a_small_object_survives_whatever_passes(world: World, kind: str, name: str) -> None:
    world.net.fail(kind, PASSING[name], 2)
    assert await put(world.store, "a/b", SMALL) == hashlib.sha256(SMALL).hexdigest()
    assert await get(world.store, "a/b") == SMALL
    assert await world.store.stat("a/b") == len(SMALL)
    assert await keys(world.store) == ["a/b"]
    world.nothing_is_left(objects=1)
    await world.store.delete("a/b")
    world.nothing_is_left()
    assert world.store.repeated == 2
    assert world.store.errors == 0


@pytest.mark.parametrize("name", ["drop", "lost answer", "503"])
@pytest.mark.parametrize("kind", ["begin", "part", "complete", "copy", "head", "delete"])
async def test_a_large_object_survives_whatever_passes(world: World, kind: str, name: str) -> None:
    world.net.fail(kind, PASSING[name], 1)
    assert await put(world.store, "a", LARGE) == hashlib.sha256(LARGE).hexdigest()
    assert await get(world.store, "a") == LARGE
    assert world.store.repeated == 1
    assert [name for name in world.bucket.objects() if name.startswith("objects/")] == ["objects/a"]
    if (kind, name) == ("begin", "lost answer"):
        assert len(world.bucket.uploads()) == 1  # nobody was told its name: it goes by its age
    else:
        world.nothing_is_left(objects=1)


LASTING = {
    "gone": (f.drops, "broke"),
    "hangs": (f.hangs, "in time"),
    "fails": (f.answers(500, "InternalError"), "failed"),
    "overloaded": (f.answers(503, "SlowDown"), "overloaded"),
    "full": (f.answers(507, "XMinioStorageFull"), "full"),
    "full, without words": (f.answers(507), "full"),
    "key refused": (f.answers(403, "InvalidAccessKeyId"), "SANDGLASS_S3_ACCESS_KEY"),
    "secret refused": (f.answers(403, "SignatureDoesNotMatch"), "SANDGLASS_S3_SECRET_KEY"),
    "no bucket": (f.answers(404, "NoSuchBucket"), "SANDGLASS_S3_CREATE_BUCKET"),
    "no S3": (f.answers(200), "cannot be understood|did not keep|does not confirm|broke|say how large"),
    "moved": (f.answers(301, "PermanentRedirect"), "SANDGLASS_S3_REGION"),
    "unknown": (f.answers(400, "SomethingNew"), "SomethingNew"),
}


@pytest.mark.parametrize("name", LASTING)
async def test_a_store_that_stays_down_is_typed_and_takes_again_once_it_is_back(world: World, name: str) -> None:
    fault, says = LASTING[name]
    world.fail_for_good("*", fault)
    for data in (SMALL, LARGE):
        with pytest.raises(StoreUnavailable, match=says) as caught:
            await put(world.store, "a", data)
        told = "".join(traceback.format_exception(caught.value))
        assert SECRET.decode() not in told
        assert "Signature=" not in told
        assert "urllib3" not in told
    assert world.store.errors == 2
    world.heal()
    world.nothing_is_left()
    assert await keys(world.store) == []
    for data in (LARGE, SMALL):
        await put(world.store, "a", data)
        assert await get(world.store, "a") == data
    world.nothing_is_left(objects=1)


@pytest.mark.parametrize("name", ["gone", "full", "fails", "key refused"])
@pytest.mark.parametrize("kind", ["put", "part", "complete", "copy", "head"])
async def test_an_upload_that_fails_half_way_leaves_nothing(world: World, kind: str, name: str) -> None:
    world.fail_for_good(kind, LASTING[name][0])
    with pytest.raises(StoreUnavailable):
        await put(world.store, "a", SMALL if kind == "put" else LARGE)
    assert await listed(world) == []
    world.heal()
    await world.store.check()  # makes up for what could not be removed then
    world.nothing_is_left()
    with pytest.raises(NotFound):
        await get(world.store, "a")


async def test_the_full_store_is_not_asked_again_and_again(world: World) -> None:
    world.fail_for_good("put", f.answers(507, "XMinioStorageFull"))
    with pytest.raises(StoreUnavailable, match="full"):
        await put(world.store, "a", SMALL)
    assert world.net.seen.count("put") == 1


# --- lies -------------------------------------------------------------------------------------------------------------


async def keeps_half_of_the_last(request: f.Message, forward: f.Forward) -> bytes:
    return await (f.keeps_half if len(request.body) < PART else f.passes)(request, forward)


LIES = {
    "another etag": ("head", f.says("etag", '"00000000000000000000000000000000"')),
    "another size": ("head", f.says("content-length", "7")),
    "no hash": ("head", f.says("x-amz-meta-sha256", "")),
    "half of a small one": ("put", f.keeps_half),
    "half of a part": ("part", keeps_half_of_the_last),
    "put together, it says": ("complete", f.says_done),
    "copied, it says": ("copy", f.says_done),
}


@pytest.mark.parametrize("name", LIES)
async def test_a_lie_about_what_is_kept_is_no_commit(world: World, name: str) -> None:
    await put(world.store, "other", b"x")
    kind, lie = LIES[name]
    world.fail_for_good(kind, lie)
    for data in (SMALL, LARGE):
        if (kind in ("part", "complete", "copy") and data is SMALL) or (kind == "put" and data is LARGE):
            continue
        with pytest.raises(StoreUnavailable, match=r"did not keep|lost an upload|cannot be understood"):
            await put(world.store, "a", data)
    world.heal()
    world.nothing_is_left(objects=1)
    assert await keys(world.store) == ["other"]
    await put(world.store, "a", LARGE)
    assert await get(world.store, "a") == LARGE


async def test_the_failed_upload_takes_back_only_its_own(world: World) -> None:
    await put(world.store, "a", b"mine")
    world.fail_for_good("put", f.drops)
    with pytest.raises(StoreUnavailable):
        await put(world.store, "a", b"never arrived")
    world.heal()
    assert await get(world.store, "a") == b"mine"


ONCE = {"cut": f.cuts, "drop": f.drops, "altered": f.flips}


@pytest.mark.parametrize("name", ONCE)
@pytest.mark.parametrize("size", [1, 262_144, 640_000])
async def test_what_arrives_wrong_once_is_read_again(world: World, name: str, size: int) -> None:
    data = (SMALL * 2)[:size]
    await put(world.store, "a", data)
    world.net.fail("get", ONCE[name], 1)
    assert await get(world.store, "a") == data
    assert world.store.repeated == 1


async def test_a_chunk_that_was_handed_out_altered_ends_the_read(world: World) -> None:
    await put(world.store, "a", SMALL)
    world.net.fail("get", f.flips_the_first, 1)
    got = bytearray()
    with pytest.raises(StoreUnavailable, match="read again"):
        async for chunk in world.store.read("a"):
            got += chunk
    assert len(got) < len(SMALL)
    assert await get(world.store, "a") == SMALL


async def test_an_object_altered_in_the_store_is_never_handed_out_whole(world: World) -> None:
    for size in (10, 640_000):
        await put(world.store, "a", SMALL[:size])
        world.fail_for_good("get", f.flips)
        got = bytearray()
        with pytest.raises(Conflict, match="not what was stored"):
            async for chunk in world.store.read("a"):
                got += chunk
        assert len(got) < size
        world.heal()
    world.bucket.put("a", SMALL)  # without a hash
    with pytest.raises(Conflict):
        await get(world.store, "a")


async def test_an_object_that_is_always_cut_is_no_silent_end(world: World) -> None:
    await put(world.store, "a", SMALL)
    world.fail_for_good("get", f.cuts)
    with pytest.raises(StoreUnavailable):
        await get(world.store, "a")


@pytest.mark.parametrize("length", ["-5", "many", "99999999999"])
async def test_a_length_that_cannot_be(world: World, length: str) -> None:
    await put(world.store, "a", SMALL)
    world.fail_for_good("get", f.says("content-length", length))
    with pytest.raises(StoreUnavailable):
        await get(world.store, "a")


async def test_an_object_replaced_while_a_broken_read_is_taken_up(world: World) -> None:
    await put(world.store, "a", SMALL * 4)
    chunks = world.store.read("a")
    world.net.fail("get", f.cuts, 1)
    await anext(chunks)
    await put(world.store, "a", SMALL * 5)
    with pytest.raises(StoreUnavailable, match="replaced"):
        async for _ in chunks:
            pass


async def test_a_list_that_was_not_asked_for(world: World) -> None:
    await put(world.store, "a/b", b"x")

    async def lies(request: f.Message, forward: f.Forward) -> bytes:
        answer = await forward(request)
        answer.put("connection", "close")
        answer.body = answer.body.replace(b"objects/a/b", b"objects/../b")
        answer.put("content-length", str(len(answer.body)))
        return answer.encode()

    world.fail_for_good("list", lies)
    assert await keys(world.store) == []  # no key of ours
    with pytest.raises(StoreUnavailable, match="not asked for"):
        async for _ in world.store.list("a/"):
            pass


# --- time and memory --------------------------------------------------------------------------------------------------


async def test_a_large_file_streams_through_two_parts(s3_server: str) -> None:
    store = store_on(settings(s3_server), patience=Patience())
    await store.open()
    block = bytes(range(256)) * 1024
    count = 200 * 1024 * 1024 // len(block)
    digest = hashlib.sha256()
    writer = await store.writer("large")
    assert isinstance(writer, S3Writer)
    most = 0
    for _ in range(count):
        digest.update(block)
        await writer.write(block)
        most = max(most, writer.held)
    assert await writer.commit() == digest.hexdigest()
    assert most <= writer.peak <= 2 * PART_BYTES
    assert writer.held == 0
    got, chunks = hashlib.sha256(), 0
    async for chunk in store.read("large"):
        assert len(chunk) <= 262_144
        got.update(chunk)
        chunks += 1
    assert got.digest() == digest.digest()
    assert chunks == 800
    await store.delete("large")
    await store.close()


async def test_parts_of_exactly_that_size(world: World) -> None:
    for size in (PART - 1, PART, PART + 1, 2 * PART):
        writer = await world.store.writer("a")
        await writer.write(bytes(size))  # in one piece, too
        assert await writer.commit() == hashlib.sha256(bytes(size)).hexdigest()
        assert writer.peak <= 2 * PART
        assert await world.store.stat("a") == size
    assert world.net.seen.count("put") == 2
    assert world.net.seen.count("part") == 4
    world.nothing_is_left(objects=1)


async def test_a_store_that_hangs_holds_up_nobody_else(world: World) -> None:
    """The loop goes on; so does a call whose thread is not taken; closing waits for nothing."""
    world.fail_for_good("get", f.hangs)
    await put(world.store, "a", SMALL)
    loop = asyncio.get_running_loop()
    hanging = [asyncio.ensure_future(get(world.store, "a")) for _ in range(4)]
    await asyncio.sleep(0.2)
    begun = loop.time()
    assert await world.store.stat("a") == len(SMALL)
    assert loop.time() - begun < 0.5
    for one in hanging:
        one.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)


async def test_a_store_that_drips_is_given_up(world: World) -> None:
    async def drips(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\nETag: "x"\r\n\r\n')
        try:
            for _ in range(200):
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.1)
        except OSError:
            pass
        writer.close()

    server = await asyncio.start_server(drips, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    store = store_on(settings(f"127.0.0.1:{port}"), patience=replace(QUICK, read_s=0.3, connect_s=0.2, deadline_s=0.5))
    begun = asyncio.get_running_loop().time()
    with pytest.raises(StoreUnavailable, match="in time"):
        await get(store, "a")
    assert asyncio.get_running_loop().time() - begun < 3
    await store.close()
    server.close()


async def test_cancelled_uploads_leave_nothing(world: World) -> None:
    for kind in ("begin", "part", "complete", "copy", "put"):
        reached = asyncio.Event()

        async def slow(request: f.Message, forward: f.Forward, reached: asyncio.Event = reached) -> bytes:
            reached.set()
            await asyncio.sleep(0.2)
            return await f.passes(request, forward)

        world.net.fail(kind, slow, 1)
        upload = asyncio.ensure_future(put(world.store, "a", SMALL if kind == "put" else LARGE))
        await reached.wait()
        upload.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upload
        world.heal()
        world.nothing_is_left()


async def test_a_closed_store(world: World) -> None:
    await world.store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await world.store.stat("a")


# --- start ------------------------------------------------------------------------------------------------------------


async def test_what_a_killed_gateway_left_goes_by_its_age(world: World) -> None:
    writer = await world.store.writer("a")
    await writer.write(LARGE)  # and no more: killed
    assert isinstance(writer, S3Writer) and writer._flight is not None
    await asyncio.wait({writer._flight})
    world.bucket.client.put(world.settings.key("uploads", "copied-but-not-removed"), b"x", "", "")
    now = world.store._clock.now()
    begun = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z").encode()

    async def true_times(request: f.Message, forward: f.Forward) -> bytes:
        """moto's server begins all uploads in 2010."""
        answer = await forward(request)
        answer.put("connection", "close")
        answer.body = re.sub(b"<Initiated>[^<]*", b"<Initiated>" + begun, answer.body)
        answer.put("content-length", str(len(answer.body)))
        return answer.encode()

    world.net.fail("uploads", true_times)
    for hours, left in ((0, 1), (23, 1), (25, 0)):
        next_one = S3Store(world.settings, ManualClock(now + hours * 3600), patience=QUICK)
        await next_one.open()
        assert len(world.bucket.uploads()) == left
        assert len(world.bucket.objects()) == left
        assert await keys(next_one) == []
        await next_one.close()
    await writer.abort()


REFUSED = {
    "no such bucket": (f.answers(404, "NoSuchBucket"), "SANDGLASS_S3_CREATE_BUCKET=yes"),
    "unknown key": (f.answers(403, "InvalidAccessKeyId"), "SANDGLASS_S3_ACCESS_KEY"),
    "wrong secret": (f.answers(403, "SignatureDoesNotMatch"), "SANDGLASS_S3_SECRET_KEY"),
    "no rights": (f.answers(403, "AccessDenied"), "may list, read, write and delete"),
    "another region": (f.answers(400, "AuthorizationHeaderMalformed"), "SANDGLASS_S3_REGION"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_settings_that_cannot_be_right_refuse_the_start(world: World, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    fault, says = REFUSED[name]
    world.fail_for_good("*", fault)
    store = store_on(replace(world.settings, create_bucket=False))
    with pytest.raises(StoreUnavailable, match=says) as caught:
        await store.open()
    assert SECRET.decode() not in caught.value.detail + caplog.text + repr(store.settings)
    assert "Signature=" not in caplog.text
    with pytest.raises(StoreUnavailable):
        await store.check()
    await store.close()


async def test_a_bucket_is_made_only_when_it_is_asked_for(s3_server: str) -> None:
    given = settings(s3_server, create_bucket=False)
    store = store_on(given)
    with pytest.raises(StoreUnavailable, match="SANDGLASS_S3_CREATE_BUCKET=yes"):
        await store.open()
    with pytest.raises(StoreUnavailable, match="no such bucket"):
        await store.check()
    await store.close()
    for _ in range(2):
        store = store_on(replace(given, create_bucket=True))
        await store.open()
        await store.check()
        await store.close()


@pytest.mark.parametrize("by", ["check", "upload"])
async def test_a_store_that_is_down_does_not_keep_the_gateway_from_starting(world: World, by: str) -> None:
    store = store_on(replace(world.settings, bucket=f"made-later-by-{by}"), patience=HURRIED)
    world.fail_for_good("*", f.drops)
    await store.open()
    with pytest.raises(StoreUnavailable):
        await store.check()
    with pytest.raises(StoreUnavailable):
        await put(store, "a", b"x")
    assert store.errors == 3
    world.heal()
    wait(store, QUICK)
    if by == "check":
        await store.check()  # makes the bucket, as it was told to
    await put(store, "a", b"x")  # so does this
    assert await get(store, "a") == b"x"
    await store.close()


async def test_an_address_where_nobody_listens() -> None:
    store = store_on(settings("127.0.0.1:9"), patience=HURRIED)
    with pytest.raises(StoreUnavailable, match="reached"):
        await store.check()
    await store.close()


async def test_tls_that_is_none_and_a_ca_file_that_is_none(s3_server: str, tmp_path: Path) -> None:
    store = store_on(settings(s3_server, secure=True))
    with pytest.raises(StoreUnavailable, match="SANDGLASS_S3_SECURE"):
        await store.open()
    await store.close()
    (tmp_path / "ca.pem").write_text("nonsense")
    for file in ("ca.pem", "absent.pem"):
        with pytest.raises(StoreUnavailable, match="SANDGLASS_S3_CA_FILE"):
            store_on(settings(s3_server, secure=True, ca_file=str(tmp_path / file)))


async def test_over_tls_with_an_authority_of_ones_own(tmp_path: Path) -> None:
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "store")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - timedelta(1), now + timedelta(1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(True, None), True)
        .sign(key, hashes.SHA256())
    )
    certificate, private = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificate.write_bytes(made.public_bytes(Encoding.PEM))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with serve(str(certificate), str(private)) as endpoint:
        given = settings(endpoint, secure=True, ca_file=str(certificate))
        store = store_on(given, part_bytes=PART)
        await store.open()
        for data in (b"", SMALL, LARGE):
            await put(store, "a", data)
            assert await get(store, "a") == data
        await store.close()
        store = store_on(replace(given, ca_file=""))
        with pytest.raises(StoreUnavailable, match="certificate is not trusted"):
            await store.check()
        await store.close()


async def test_the_server_is_asked_to_encrypt(world: World) -> None:
    store = store_on(replace(world.settings, encryption="sse-s3"), part_bytes=PART)
    for data in (SMALL, LARGE):
        await put(store, "a", data)
        found = world.bucket.client._minio.stat_object(world.settings.bucket, world.settings.key("objects", "a"))
        assert found.metadata is not None and found.metadata["x-amz-server-side-encryption"] == "AES256"
        assert await get(store, "a") == data
    await store.close()


async def test_pauses_are_random_and_bounded() -> None:
    patience = Patience()
    for tries in (0, 1, 5, 10_000):
        longest = min(patience.most_s, patience.first_s * 2 ** min(tries, 32))
        assert patience.pause(tries, 0.0) == 0.0
        assert patience.pause(tries, 0.5) == longest / 2


# --- the map of errors ------------------------------------------------------------------------------------------------


def kinds(root: type[BaseException]) -> set[type[BaseException]]:
    return {root}.union(*(kinds(one) for one in root.__subclasses__()))


async def test_every_error_of_theirs_becomes_one_of_ours() -> None:
    theirs = kinds(urllib3.exceptions.HTTPError) | kinds(MinioException) | kinds(OSError) | {ValueError, KeyError, TypeError, AttributeError}
    # what other packages make of an OSError never reaches the store, and cannot always be made without its arguments
    known = sys.stdlib_module_names | {"urllib3", "minio"}
    for kind in (kind for kind in theirs if kind.__module__.partition(".")[0] in known):
        made = kind.__new__(kind)
        if isinstance(made, S3Error):
            response = urllib3.HTTPResponse(status=418)
            made = S3Error(response, "Odd <secret>", "secret", "secret", "secret", "secret")
        elif isinstance(made, ServerError):
            made = ServerError("secret", 500)
        elif isinstance(made, InvalidResponseError):
            made = InvalidResponseError(500, "text/html", "secret")
        assert isinstance(made, Exception)
        failure = failure_of(made)
        assert isinstance(failure.error, StoreUnavailable), kind
        assert "secret" not in failure.error.detail
    for ours in (NotFound("x"), Conflict("y")):
        assert failure_of(ours).error is ours
    assert issubclass(StoreUnavailable, SandglassError)
