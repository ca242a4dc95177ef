"""What an answer means, and when the client asks again: on a fake network, with the gateway's own problems."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
import sandglass_client as sg
from sandglass_client.errors import BY_CODE, from_response
from sandglass_client.stream import server_events
from sandglass_client.transport import Transport

from gateway import errors as theirs
from gateway.http.errors import encode, headers_of, problem
from gateway.http.render import bye_event, frame, gap_event, session_event

Answer = httpx2.Response | Exception | Callable[[httpx2.Request], httpx2.Response]


class Network(httpx2.AsyncBaseTransport):
    """Gives these answers, one a request; ``seen`` holds the requests."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.seen: list[httpx2.Request] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await request.aread()
        self.seen.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx2.Response) else answer(request)


class Broken(httpx2.AsyncByteStream):
    """A body that ends with a broken connection, unless ``whole``."""

    def __init__(self, *parts: bytes, whole: bool = False) -> None:
        self._parts, self._whole = parts, whole

    async def __aiter__(self) -> Any:
        for part in self._parts:
            yield part
        if not self._whole:
            raise httpx2.RemoteProtocolError("the peer closed")


def refusal(error: theirs.SandglassError) -> httpx2.Response:
    """As the gateway's HTTP layer answers it."""
    status, body = problem(error)
    return httpx2.Response(status, headers=headers_of(status, body), content=encode(body))


def ok(value: Any) -> httpx2.Response:
    return httpx2.Response(200, json=value)


def transport(network: Network, token: Any = "t", patience_s: float = 5.0) -> Transport:
    return Transport("http://gateway/prefix/", token, patience_s=patience_s, transport=network)


def tree(root: type[theirs.SandglassError]) -> Iterator[type[theirs.SandglassError]]:
    yield root
    for kind in root.__subclasses__():
        yield from tree(kind)


@pytest.mark.parametrize("kind", list(tree(theirs.SandglassError)), ids=lambda kind: kind.__name__)
def test_every_error_of_the_gateway_has_its_class(kind: type[theirs.SandglassError]) -> None:
    response = refusal(kind("A sentence.", retry_after=2.5, lost_variables=["df"]))
    error = from_response(response.status_code, response.headers, response.content)
    kind = next(each for each in kind.__mro__ if "code" in vars(each))  # one that shares its parent's code is the parent to a client
    assert type(error).__name__ == kind.__name__ and type(error) is BY_CODE[kind.code]
    assert (error.code, error.status, error.retry_after, error.detail) == (kind.code, response.status_code, 2.5, "A sentence.")
    assert error.extra["lost_variables"] == ["df"]
    family = {type(error).__mro__[n].__name__ for n in range(len(type(error).__mro__))}
    assert {k.__name__ for k in kind.__mro__} <= family, "a program that catches the parent catches the child"


@pytest.mark.parametrize(
    ("status", "headers", "body", "kind", "retry_after"),
    [
        (502, {"content-type": "text/html"}, b"<html>", sg.Unavailable, None),
        (503, {"retry-after": "7"}, b"", sg.Unavailable, 7.0),
        (503, {"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}, b"", sg.Unavailable, None),
        (429, {"content-type": "application/problem+json"}, b'{"code": "of_tomorrow", "retry_after": 3}', sg.QuotaExceeded, 3.0),
        (404, {"content-type": "application/json"}, b"{broken", sg.NotFound, None),
        (400, {"content-type": "application/json"}, b'{"code": 5, "detail": [], "retry_after": -1}', sg.BadRequest, None),
        (418, {}, b"", sg.SandglassError, None),
    ],
)
def test_answers_that_are_not_the_gateways(status: int, headers: dict[str, str], body: bytes, kind: type, retry_after: float | None) -> None:
    error = from_response(status, headers, body)
    assert type(error) is kind and error.retry_after == retry_after and error.status == status and error.detail


async def test_what_was_refused_is_tried_again_after_as_long_as_it_says() -> None:
    network = Network(refusal(theirs.QuotaExceeded(retry_after=0.3)), refusal(theirs.RecordsUnavailable(retry_after=0.1)), ok({"a": 1}))
    begun = asyncio.get_running_loop().time()
    assert await transport(network).json("POST", "/x", {"b": 2}, repeat=False) == {"a": 1}
    assert 0.4 <= asyncio.get_running_loop().time() - begun < 3
    assert [str(r.url) for r in network.seen] == ["http://gateway/prefix/x"] * 3
    assert all(json.loads(r.content) == {"b": 2} and r.headers["authorization"] == "Bearer t" for r in network.seen)


@pytest.mark.parametrize(
    "error",
    [
        theirs.QuotaExceeded(retry_after=60.0),  # longer than there is patience
        theirs.ImageUnavailable(),  # does not say that it helps
        theirs.SandglassError(retry_after=0.1),  # 500: nobody knows what happened
        theirs.GenerationMismatch(),
    ],
    ids=lambda error: error.code,
)
async def test_what_does_not_help_is_not_tried_again(error: theirs.SandglassError) -> None:
    network = Network(refusal(error))
    with pytest.raises(sg.SandglassError) as caught:
        await transport(network).json("GET", "/x")
    assert caught.value.code == error.code and len(network.seen) == 1


async def test_nothing_runs_twice() -> None:
    """A POST whose answer was cut off may have been taken; one that could not be sent was not."""
    lost = httpx2.ReadError("")
    network = Network(httpx2.ConnectError("refused"), lost)
    with pytest.raises(sg.Unreachable) as caught:
        await transport(network).json("POST", "/x", {}, repeat=False)
    assert caught.value.sent and len(network.seen) == 2
    network = Network(httpx2.Response(200, stream=Broken(b'{"a"')), lost, ok({"a": 1}))
    assert await transport(network).json("GET", "/x") == {"a": 1}
    network = Network(*[httpx2.ConnectError("refused")] * 9)
    with pytest.raises(sg.Unreachable) as caught:
        await transport(network, patience_s=0.3).json("GET", "/x")
    assert not caught.value.sent and caught.value.retry_after is None and len(network.seen) == 2


async def test_code_is_sent_again_under_the_same_key() -> None:
    session = {"session_id": "s1", "state": "active", "generation": 1}
    done = {"execution_id": "e1", "state": "finished", "status": "ok", "exit_reason": "ok"}
    network = Network(ok(session), httpx2.ReadError(""), ok(done), httpx2.ReadError(""), ok(done))
    async with sg.Sandglass("http://g", "t", session_id="s1", transport=network) as s:
        assert (await s.run("x = 1")).ok and (await s.run("x = 1", idempotency_key="mine")).ok
    keys = [r.headers["idempotency-key"] for r in network.seen[1:]]
    assert keys[0] == keys[1] != "mine" and keys[2:] == ["mine", "mine"]
    assert json.loads(network.seen[1].content) == {"code": "x = 1"}, "fields that are not given are not sent"


async def test_an_execution_that_found_no_sandbox_is_tried_again_within_the_patience() -> None:
    session = {"session_id": "s1"}
    full = {"execution_id": "e1", "state": "finished", "status": "error", "exit_reason": "capacity_exhausted", "retry_after": 0.1}
    done = {"execution_id": "e2", "state": "finished", "status": "ok", "exit_reason": "ok"}
    async with sg.Sandglass("http://g", "t", session_id="s1", transport=Network(ok(session), ok(full), ok(full), ok(done))) as s:
        assert (await s.run("1")).execution_id == "e2"
    async with sg.Sandglass("http://g", "t", session_id="s1", patience_s=0.05, transport=Network(ok(session), ok(full))) as s:
        assert (await s.run("1")).exit_reason == "capacity_exhausted"


async def test_a_token_that_is_made_anew() -> None:
    tokens = iter(["old", "fresh"])
    network = Network(refusal(theirs.Unauthenticated()), ok({}))
    await transport(network, lambda: next(tokens)).json("GET", "/x")
    assert [r.headers["authorization"] for r in network.seen] == ["Bearer old", "Bearer fresh"]
    with pytest.raises(sg.UserDisabled):
        await transport(Network(refusal(theirs.UserDisabled()))).json("GET", "/x")


def events(*parts: bytes, whole: bool = False) -> httpx2.Response:
    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Broken(*parts, whole=whole))


def numbered(*numbers: int) -> bytes:
    return b"".join(frame("message", b"{}", n) for n in numbers)


async def test_a_stream_comes_back_where_it_was() -> None:
    """Broken in the middle of an event, shut down, refused for a moment, with a gap: each event once, in order."""
    head = b"retry: 50\n\n" + session_event({"last_event": 4})
    network = Network(
        events(head),  # nothing numbered came yet: the session says where it stands
        events(head, numbered(5, 6), b"id: 7\nevent: mess"),
        httpx2.ConnectError("restarting"),
        refusal(theirs.Unavailable(retry_after=0.05)),
        events(head, numbered(6, 7), bye_event("shutdown"), whole=True),
        events(head, gap_event(7, 12), numbered(12), bye_event("session_ended"), whole=True),
    )
    found = [event async for event in server_events(transport(network), "/events")]
    assert [event.id for event in found if event.id is not None] == [5, 6, 7, 11, 12]
    assert [r.headers.get("last-event-id") for r in network.seen] == [None, "4", "6", "6", "6", "7"]
    assert found[-1].type == "bye" and not network.answers


async def test_a_stream_that_does_not_come_back() -> None:
    for answer, kind in ((httpx2.ConnectError(""), sg.Unreachable), (refusal(theirs.SessionEnded()), sg.SessionEnded)):
        with pytest.raises(kind):
            async for _ in server_events(transport(Network(*[answer] * 9), patience_s=0.1), "/events", 0):
                pass
    network = Network(events(bye_event("unauthenticated"), whole=True), refusal(theirs.Unauthenticated()))
    with pytest.raises(sg.Unauthenticated):
        async for _ in server_events(transport(network), "/events", 0):
            pass


@pytest.mark.parametrize("identifier", ["", "..", "a/b", "a?b", "é", "a b"])
async def test_an_id_cannot_lead_elsewhere(identifier: str) -> None:
    async with sg.Gateway("http://g", "t", transport=Network()) as gateway:
        with pytest.raises(sg.BadRequest):
            await gateway.session(identifier)


def test_where_and_who(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SANDGLASS_URL", raising=False)
    monkeypatch.delenv("SANDGLASS_TOKEN", raising=False)
    for url, token in ((None, "t"), ("http://g", None), ("ftp://g", "t")):
        with pytest.raises(ValueError):
            sg.Gateway(url, token)
    monkeypatch.setenv("SANDGLASS_URL", "http://g/")
    monkeypatch.setenv("SANDGLASS_TOKEN", "t")
    assert sg.Gateway().url == "http://g"
