"""The small parts by themselves."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from gateway.domain.model import Principal
from gateway.errors import BadRequest, QuotaExceeded
from gateway.http.cache import ByteCache, Payload
from gateway.http.confirm import Confirmer
from gateway.http.deps import _with_name_of
from gateway.http.expiry import Expiry
from gateway.http.incoming import Incoming
from gateway.http.models import Body, Query, parse_body, parse_query
from gateway.http.models.queries import Flag, Seconds, Whole
from gateway.http.notebooks import MAX_PER_USER, Notebooks
from gateway.http.outflow import Outflow
from gateway.http.render import refusals
from gateway.protocol import jupyter


class Inner(Body):
    path: str


class Sample(Body):
    code: str = Field(max_length=5)
    number: float | None = Field(None, ge=0.5, le=10)
    whole: int = Field(0, ge=0, le=2**53)
    yes: bool = False
    word: Literal["a", "b"] = "a"
    cells: list[Annotated[str, Field(max_length=3)]] | None = Field(None, max_length=2)
    inner: list[Inner] = Field([], max_length=2)


@pytest.mark.parametrize(
    ("body", "key", "says"),
    [
        (b"{}", "code", "is missing"),
        (b'{"code": null}', "code", "is missing"),
        (b'{"code": 1}', "code", "must be a string"),
        (b'{"code": "123456"}', "code", "at most 5 characters"),
        (b'{"code": "\\ud800"}', "code", "surrogate"),
        (b'{"code": "", "number": true}', "number", "must be a number"),
        (b'{"code": "", "number": "1"}', "number", "must be a number"),
        (b'{"code": "", "number": 1' + b"0" * 400 + b"}", "number", "must be a number"),
        (b'{"code": "", "number": 1e999}', "number", "at most 10"),
        (b'{"code": "", "number": 0}', "number", "at least 0.5"),
        (b'{"code": "", "whole": 1.5}', "whole", "a whole number"),
        (b'{"code": "", "whole": 1' + b"0" * 400 + b"}", "whole", "at most 9007199254740992"),
        (b'{"code": "", "yes": 1}', "yes", "true or false"),
        (b'{"code": "", "word": "c"}', "word", "must be one of: 'a' or 'b'"),
        (b'{"code": "", "cells": "a"}', "cells", "must be a list"),
        (b'{"code": "", "cells": [1]}', "cells.0", "must be a string"),
        (b'{"code": "", "cells": ["abcd"]}', "cells.0", "at most 3"),
        (b'{"code": "", "cells": ["a", "b", "c"]}', "cells", "at most 2 entries"),
        (b'{"code": "", "inner": [1]}', "inner.0", "must be an object"),
        (b'{"code": "", "inner": [{}]}', "inner.0.path", "is missing"),
        (b'{"code": "", "inner": [{"path": "", "odd": 1}]}', "inner.0.odd", "Unknown key"),
        (b'{"code": "", "odd": 1}', "odd", "known are: cells, code"),
        (b'{"code": "", "\\ud800": 1}', "\ud800", "Unknown key"),
    ],
)
def test_a_body_that_its_model_refuses(body: bytes, key: str, says: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_body(body, Sample)
    assert caught.value.extra["key"] == key and says in caught.value.detail, caught.value.detail


def test_a_body_that_its_model_takes() -> None:
    found = parse_body(b'{"code": "x", "number": 3, "cells": [], "word": null}', Sample)
    assert (found.code, found.number, found.cells, found.word, found.yes) == ("x", 3.0, [], "a", False)
    words = Sample.model_json_schema()["properties"]["word"]
    assert {"type": "null"} in words["anyOf"]  # what is taken is told
    assert "anyOf" not in Sample.model_json_schema()["properties"]["code"]


class Asked(Query):
    flag: Flag = False
    after: Whole | None = None
    wait: Seconds = 0.0


def test_query_arguments() -> None:
    found = parse_query({"flag": "TRUE", "after": "7", "wait": "1.5"}, Asked)
    assert (found.flag, found.after, found.wait) == (True, 7, 1.5)
    assert parse_query({"flag": "", "after": " "}, Asked) == Asked()
    bad: list[tuple[dict[str, Any], str]] = [
        ({"flag": "2"}, "flag"), ({"after": "-1"}, "after"), ({"after": "1_0"}, "after"), ({"after": "9" * 30}, "after"), ({"wait": "nan"}, "wait"),
        ({"wait": "inf"}, "wait"), ({"wait": "-1"}, "wait"), ({"wait": "x"}, "wait"), ({"odd": "1"}, "odd"),
    ]  # fmt: skip
    for given, key in bad:
        with pytest.raises(BadRequest) as caught:
            parse_query(given, Asked)
        assert caught.value.extra["key"] == key and key in caught.value.detail


def test_confirmation_goes_one_round_trip_at_a_time() -> None:
    c = Confirmer()
    assert c.ping() is None and c.pong(b"") is None and c.again() == b""
    c.delivered(3)
    first = c.ping()
    assert first is not None and c.ping() is None and c.waiting and c.again() == first
    c.delivered(7)
    assert c.pong(b"") is None and c.pong(b"nonsense") is None and c.pong(first[:-1] + b"\xff") is None
    assert c.pong(first) == 3 and c.pong(first) is None
    second = c.ping()
    assert second is not None and second != first and c.pong(second) == 7
    assert c.ping() is None and len(second) <= 125


def test_the_cache_is_bounded_by_bytes() -> None:
    cache = ByteCache(10_000)
    made: list[int] = []

    def value(n: int, size: int = 1000) -> Payload:
        return cache.get(n, lambda: (made.append(n), Payload(b"x" * size))[1])

    assert value(1).data == value(1).data and made == [1]
    for n in range(2, 50):
        value(n)
    assert cache.statistics()["bytes"] <= 10_000 and cache.statistics()["entries"] < 10
    value(1)
    assert made[-1] == 1
    value(99, 6000)
    value(99, 6000)
    assert made[-2:] == [99, 99]  # too large to be kept

    def fails() -> Payload:
        raise ValueError

    with pytest.raises(ValueError):
        cache.get("bad", fails)
    assert cache.get("bad", lambda: Payload(b"ok")).data == b"ok"


def test_outflow() -> None:
    async def run() -> None:
        flow = Outflow()
        await flow.flushed()
        flow.add(10)
        waiters = [asyncio.ensure_future(flow.flushed()) for _ in range(2)]
        await asyncio.sleep(0)
        flow.took(4)
        await asyncio.sleep(0)
        assert not waiters[0].done()
        flow.took(6)
        await asyncio.gather(*waiters)
        flow.add(1)
        waiter = asyncio.ensure_future(flow.flushed())
        await asyncio.sleep(0)
        flow.lose()
        with pytest.raises(ConnectionError):
            await waiter
        with pytest.raises(ConnectionError):
            await flow.flushed()

    asyncio.run(run())


def test_incoming_is_bounded_and_ends_with_its_client() -> None:
    async def run() -> None:
        incoming = Incoming()
        writer = asyncio.ensure_future(_put_many(incoming, 10))
        await asyncio.sleep(0.01)
        assert not writer.done() and len(incoming._chunks) <= 4
        got = []
        async for chunk in incoming.chunks():
            got.append(chunk)
            if len(got) == 10:
                incoming.end()
        assert got == [b"%d" % n for n in range(10)] and writer.done()

        incoming = Incoming()
        await incoming.put(b"x")
        incoming.broke_off()
        with pytest.raises(BadRequest):
            async for _ in incoming.chunks():
                pass

        incoming = Incoming()
        writer = asyncio.ensure_future(_put_many(incoming, 100))
        await asyncio.sleep(0.01)
        incoming.nobody_reads()
        await asyncio.wait_for(writer, 5)

    asyncio.run(run())


async def _put_many(incoming: Incoming, count: int) -> None:
    for n in range(count):
        await incoming.put(b"%d" % n)


class StandingClock:
    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def boottime(self) -> float:
        return self.time

    def boot_id(self) -> str:
        return "boot"


def test_expiry_goes_by_the_wall() -> None:
    async def run() -> None:
        clock, fired = StandingClock(), []
        never = Expiry(clock, 0, lambda: fired.append("never"))
        past = Expiry(clock, 999, lambda: fired.append("past"))
        soon = Expiry(clock, 1000.02, lambda: fired.append("soon"))
        gone = Expiry(clock, 1000.01, lambda: fired.append("gone"))
        gone.cancel()
        await asyncio.sleep(0.1)
        assert fired == ["past"]  # the wall has not moved, whatever the loop's own clock says
        clock.time = 1000.02
        await asyncio.sleep(0.1)
        assert fired == ["past", "soon"]
        for e in (never, past, soon):
            e.cancel()

    asyncio.run(run())


def test_notebooks_are_bounded() -> None:
    notebooks, alice = Notebooks(), Principal("alice", "t1")
    for n in range(MAX_PER_USER + 10):
        notebooks.add(alice, path=f"p{n}", name="", kind="notebook", kernel_id=f"k{n}")
    assert len(notebooks) == MAX_PER_USER and notebooks.by_path(alice, "p0") is None
    assert notebooks.by_path(Principal("alice", "t2"), f"p{MAX_PER_USER}") is None
    notebooks.keep_only(alice, {"k50"})
    assert [n.kernel_id for n in notebooks.of(alice)] == ["k50"]
    notebooks.keep_only(alice, set())
    assert len(notebooks) == 0 and not notebooks._users


def test_refusals_answer_requests_only() -> None:
    error = QuotaExceeded("too many")

    def kinds(msg_type: str, channel: str = "shell") -> list[tuple[str, str]]:
        header = jupyter.make_header(msg_type, "c", msg_id="m1")
        answers = [
            jupyter.decode(a) for a in refusals(jupyter.decode(jupyter.build(channel, header, {}, {}, {})), error)
        ]
        assert all(a.parent_id == "m1" for a in answers)
        return [(a.channel, a.msg_type) for a in answers]

    assert kinds("execute_request") == [
        ("iopub", "status"),
        ("iopub", "error"),
        ("shell", "execute_reply"),
        ("iopub", "status"),
    ]
    assert kinds("complete_request") == [("shell", "complete_reply")]
    assert kinds("debug_request", "control") == [("control", "debug_reply")]
    assert kinds("comm_msg") == [] and kinds("input_reply", "stdin") == []


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost:1", "http://localhost:9000"),
        ("example.org", "http://example.org:9000"),
        ("[::1]:1", "http://[::1]:9000"),
        ("[::1]", "http://[::1]:9000"),
        ("a b", "http://127.0.0.1:9000"),
        ("x;script-src *", "http://127.0.0.1:9000"),
        ("", "http://127.0.0.1:9000"),
    ],
)
def test_the_frame_has_the_name_that_the_browser_used(host: str, expected: str) -> None:
    assert _with_name_of("http://127.0.0.1:9000", host) == expected
