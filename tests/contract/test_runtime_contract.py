"""What every ``SandboxRuntime`` promises, run against the fake and against a real engine on both runtimes.

The engine's cases need ``SANDGLASS_TEST_DOCKER_HOST`` and ``SANDGLASS_TEST_IMAGE`` (the kernel image) and are skipped without.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from gateway.backends.docker import DockerRuntime
from gateway.domain.model import Limits, Profile
from gateway.errors import EngineUnavailable, ImageUnavailable, ProfileUnavailable, SandboxLost, SandglassError
from gateway.ports import RuntimeEvent
from gateway.testing.runtime import FakeRuntime
from tests.contract.runtime_world import Door, Talk, World

HOST = os.environ.get("SANDGLASS_TEST_DOCKER_HOST", "")
IMAGE = os.environ.get("SANDGLASS_TEST_IMAGE", "")
TIERS = {"fake": ("container", "runc"), "runc": ("container", "runc"), "runsc": ("gvisor", "runsc")}
LIMITS = Limits(
    memory_bytes=512 << 20, workspace_bytes=64 << 20, inputs_bytes=32 << 20, tmp_bytes=32 << 20, shm_bytes=16 << 20, workspace_inodes=1000
)

pytestmark = pytest.mark.asyncio


@pytest.fixture(params=["fake", "runc", "runsc"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    tier, runtime_name = TIERS[request.param]
    profile = Profile(tier, tier, runtime_name, limits=LIMITS)
    if request.param == "fake":
        fake = FakeRuntime(images=frozenset({"kernel:1"}))

        async def stop() -> None:
            fake.stop_engine()

        async def start() -> None:
            fake.hang(False)
            fake.start_engine()

        async def hang() -> None:
            fake.hang()

        world = World(fake, profile, "kernel:1", stop, start, hang, patience_s=5.0, real=False)
        yield world
        await fake.close()
        return
    if not HOST.startswith("unix://") or not IMAGE:
        pytest.skip("needs SANDGLASS_TEST_DOCKER_HOST (unix://...) and SANDGLASS_TEST_IMAGE")
    door = Door(HOST.removeprefix("unix://"))
    await door.open()
    runtime = DockerRuntime(f"unix://{door.path}", quick_s=3.0)
    if profile.runtime not in (await runtime.info()).runtimes:
        pytest.skip(f"the engine has no {profile.runtime}")

    async def deafen() -> None:
        door.go_deaf()

    world = World(runtime, profile, IMAGE, door.shut, door.open, deafen)
    yield world
    await door.forget()
    await runtime.close()
    behind = DockerRuntime(HOST)
    for facts in await behind.list(world.instance):
        await behind.remove(facts.engine_id)
    await behind.close()


async def until(events: AsyncIterator[RuntimeEvent], action: str, engine_id: str = "") -> RuntimeEvent:
    async for event in events:
        if event.action == action and event.engine_id == engine_id:
            return event
    raise AssertionError("the events ended")


# ---------------------------------------------------------------- the life of a sandbox


async def test_info_names_runtimes_and_refuses_nothing_that_is_there(world: World) -> None:
    info = await world.runtime.info()
    assert info.version
    assert world.profile.runtime in info.runtimes
    assert world.profile.tier not in info.problems
    assert info.cgroup_version in (1, 2)


async def test_a_message_goes_in_and_comes_out(world: World) -> None:
    _, _, talk = await world.running()
    assert talk.hellos[0]["epoch"] == 0
    hello = await asyncio.wait_for(talk.attach(1), world.patience_s)
    assert hello["epoch"] == 1
    assert await asyncio.wait_for(talk.ping(b"are you there"), world.patience_s) == b"are you there"
    await talk.stream.close()


async def test_a_sandbox_goes_on_while_nobody_is_attached_and_is_attached_again(world: World) -> None:
    _, engine_id, talk = await world.running()
    await talk.attach(1)
    await talk.stream.close()
    again = Talk(await world.runtime.attach(engine_id), talk.marker)
    hello = await asyncio.wait_for(again.attach(2), world.patience_s)
    assert (hello["epoch"], hello["marker"]) == (2, talk.marker.hex())
    assert await asyncio.wait_for(again.ping(b"again"), world.patience_s) == b"again"
    await again.stream.close()


async def test_facts_follow_a_sandbox_from_creation_to_removal(world: World) -> None:
    spec, engine_id = await world.create()
    facts = await world.runtime.inspect(engine_id)
    assert facts is not None
    assert (facts.running, facts.exit_code, facts.started_at, facts.finished_at) == (False, None, 0.0, 0.0)
    assert facts.sandbox_id == spec.sandbox_id
    await world.runtime.start(engine_id)
    facts = await world.runtime.inspect(engine_id)
    assert facts is not None
    assert facts.running
    assert facts.exit_code is None
    assert facts.started_at > 0
    await world.runtime.remove(engine_id)
    assert await world.runtime.inspect(engine_id) is None


async def test_list_shows_all_of_this_instance_and_no_other(world: World) -> None:
    one, _ = await world.create()
    two, two_id = await world.create()
    _, other = await world.create(instance=world.instance + "-other")
    await world.runtime.start(two_id)
    found = {facts.sandbox_id: facts for facts in await world.runtime.list(world.instance)}
    assert set(found) == {one.sandbox_id, two.sandbox_id}
    assert [found[s.sandbox_id].running for s in (one, two)] == [False, True]
    assert found[one.sandbox_id].labels["sandglass.template"] == "t"
    await world.runtime.remove(other)


async def test_removing_is_idempotent_and_safe_to_do_twice_at_once(world: World) -> None:
    _, engine_id, talk = await world.running()
    await asyncio.gather(world.runtime.remove(engine_id), world.runtime.remove(engine_id), world.runtime.remove(engine_id))
    assert await world.runtime.inspect(engine_id) is None
    await world.runtime.remove(engine_id)
    await world.runtime.remove("0" * 64)
    while data := await asyncio.wait_for(talk.stream.read(), 10):
        assert isinstance(data, bytes)
    with pytest.raises(SandboxLost):
        talk.stream.write(b"too late")
    await talk.stream.close()


async def test_starting_twice_is_no_error(world: World) -> None:
    _, engine_id, talk = await world.running()
    await world.runtime.start(engine_id)
    await talk.stream.close()


async def test_stats_count_memory_time_and_processes(world: World) -> None:
    _, engine_id, talk = await world.running()
    stats = await world.runtime.stats(engine_id)
    assert stats["memory_bytes"] > 0
    assert stats["pids"] >= 1
    assert stats["cpu_s"] > 0
    await talk.stream.close()


# ---------------------------------------------------------------- events


async def test_events_tell_of_an_end_and_are_replayed(world: World) -> None:
    before = time.time() - 5 if world.real else 0.0
    events = world.runtime.events(world.instance, before)
    first = await asyncio.wait_for(anext(events), 10)
    assert (first.action, first.engine_id) == ("engine_up", "")
    spec, engine_id, talk = await world.running()
    await world.runtime.remove(engine_id)
    died = await asyncio.wait_for(until(events, "die", engine_id), 10)
    assert (died.sandbox_id, died.exit_code) == (spec.sandbox_id, 137)
    gone = await asyncio.wait_for(until(events, "destroy", engine_id), 10)
    assert gone.at >= died.at > 0
    replayed = world.runtime.events(world.instance, died.at - 1)
    assert (await asyncio.wait_for(until(replayed, "die", engine_id), 10)) == died
    await talk.stream.close()
    for stream in (events, replayed):
        await stream.aclose()  # type: ignore[attr-defined]


async def test_events_of_another_instance_are_not_told(world: World) -> None:
    events = world.runtime.events(world.instance, time.time() - 5 if world.real else 0.0)
    _, other = await world.create(instance=world.instance + "-other")
    await world.runtime.start(other)
    await world.runtime.remove(other)
    _, mine = await world.create()
    await world.runtime.start(mine)
    await world.runtime.remove(mine)
    async for event in events:
        assert event.engine_id != other
        if event.action == "destroy":
            break
    await events.aclose()  # type: ignore[attr-defined]


# ---------------------------------------------------------------- what is not there


async def test_unknown_ids(world: World, caplog: pytest.LogCaptureFixture) -> None:
    unknown = "f" * 64
    with caplog.at_level(logging.INFO):
        assert await world.runtime.inspect(unknown) is None
        assert await world.runtime.stats(unknown) == {}
        await world.runtime.remove(unknown)
        _, engine_id = await world.create()
        await world.runtime.remove(engine_id)
    assert caplog.messages == [], "that it is not there is an answer, not news"
    for call in (world.runtime.attach, world.runtime.start):
        with pytest.raises(SandboxLost):
            await call(unknown)


async def test_a_sandbox_that_does_not_run_has_no_stats(world: World) -> None:
    _, engine_id = await world.create()
    assert await world.runtime.stats(engine_id) == {}


async def test_a_missing_image_is_named(world: World) -> None:
    with pytest.raises(ImageUnavailable):
        await world.create(image="sandglass-no-such-image:1")
    with pytest.raises(ImageUnavailable):
        await world.runtime.image_digest("sandglass-no-such-image:1")
    assert (await world.runtime.image_digest(world.image)).startswith("sha256:")


async def test_a_missing_runtime_refuses_the_profile(world: World) -> None:
    with pytest.raises(ProfileUnavailable):
        await world.create(profile=replace(world.profile, runtime="no-such-runtime"))


async def test_an_ended_sandbox_cannot_be_attached(world: World) -> None:
    _, engine_id, talk = await world.running()
    if isinstance(world.runtime, FakeRuntime):
        world.runtime.exit(engine_id, 2)
    else:
        assert isinstance(world.runtime, DockerRuntime)
        await world.runtime._quick.run(lambda client: client.kill(engine_id))
    while await asyncio.wait_for(talk.stream.read(), 10):
        pass
    with pytest.raises(SandboxLost):
        await asyncio.wait_for(world.runtime.attach(engine_id), 10)
    facts = await world.runtime.inspect(engine_id)
    assert facts is not None
    assert not facts.running
    assert facts.exit_code in (2, 137)
    assert facts.finished_at >= facts.started_at > 0


# ---------------------------------------------------------------- the engine in trouble


async def every_call(world: World, engine_id: str) -> list[BaseException | Any]:
    runtime = world.runtime
    calls = (
        runtime.info(),
        runtime.image_digest(world.image),
        runtime.create(world.spec()),
        runtime.attach(engine_id),
        runtime.start(engine_id),
        runtime.inspect(engine_id),
        runtime.remove(engine_id),
        runtime.list(world.instance),
        runtime.stats(engine_id),
    )
    return await asyncio.gather(*calls, return_exceptions=True)


async def test_an_engine_that_stops_gives_typed_errors_and_its_sandboxes_go_on(world: World) -> None:
    _, engine_id, talk = await world.running()
    await talk.attach(1)
    events = world.runtime.events(world.instance, time.time() if world.real else 0.0)
    assert (await asyncio.wait_for(anext(events), 10)).action == "engine_up"
    await world.stop()
    for result in await asyncio.wait_for(every_call(world, engine_id), 30):
        assert isinstance(result, EngineUnavailable), result
    with contextlib.suppress(SandglassError):
        while await asyncio.wait_for(talk.stream.read(), 10):
            pass
    await world.start()
    up = await asyncio.wait_for(anext(events), 20)
    assert up.action == "engine_up"
    facts = await world.runtime.inspect(engine_id)
    assert facts is not None
    assert facts.running
    again = Talk(await world.runtime.attach(engine_id), talk.marker)
    await asyncio.wait_for(again.attach(2), world.patience_s)
    assert await asyncio.wait_for(again.ping(b"still here"), world.patience_s) == b"still here"
    await again.stream.close()
    await events.aclose()  # type: ignore[attr-defined]


async def test_an_engine_that_hangs_costs_bounded_time_and_no_threads(world: World) -> None:
    _, engine_id, talk = await world.running()
    await world.hang()
    started = time.monotonic()
    calls = [world.runtime.inspect(engine_id) for _ in range(40)] + [world.runtime.stats(engine_id) for _ in range(10)]
    for result in await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 60):
        assert isinstance(result, EngineUnavailable), result
    with pytest.raises(EngineUnavailable):
        await asyncio.wait_for(world.runtime.attach(engine_id), 60)
    assert time.monotonic() - started < 30
    await world.stop()
    await world.start()
    facts = await world.runtime.inspect(engine_id)
    assert facts is not None
    assert facts.running
    await talk.stream.close()


async def test_no_engine_at_all() -> None:
    with tempfile.TemporaryDirectory() as folder:
        runtime = DockerRuntime(f"unix://{folder}/nothing.sock", quick_s=1.0)
        world = World(runtime, Profile("container", "container", "runc"), "x", *[_nothing] * 3)
        for result in await asyncio.wait_for(every_call(world, "0" * 64), 30):
            assert isinstance(result, EngineUnavailable), result
        await runtime.close()


async def _nothing() -> None:
    return


@pytest.mark.parametrize("url", ["ssh://root@host", "npipe:////./pipe/x", "", "unix://", "tcp://", "tcp://h:notaport"])
async def test_addresses_that_cannot_carry_a_stream_are_refused_with_advice(url: str) -> None:
    with pytest.raises(EngineUnavailable, match="DOCKER_HOST"):
        DockerRuntime(url)
