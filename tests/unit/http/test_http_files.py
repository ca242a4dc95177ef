"""Uploads and downloads as streams."""

from __future__ import annotations

import asyncio
import hashlib
import json

import pytest
from http_served import PATIENCE_S, Served, assert_problem, js, served
from test_http_native import until
from tornado.httpclient import AsyncHTTPClient

from gateway.http.download import disposition


@served()
async def test_there_and_back(s: Served) -> None:
    session = await s.session()
    root = f"/api/v1/sessions/{session.session_id}/files"
    data = bytes(range(256)) * 4000
    response = await s.call("PUT", f"{root}/in/a%20b/caf%C3%A9%2Bplus.csv", data)
    assert response.code == 201
    path = "in/a b/café+plus.csv"
    assert js(response) == {"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    assert session.files[path] == data
    assert js(await s.call("GET", root))["files"] == [{"path": path, "size": len(data)}]
    got = await s.call("GET", f"{root}/in/a%20b/caf%C3%A9%2Bplus.csv")
    assert got.code == 200 and got.body == data
    assert got.headers["Content-Type"] == "application/octet-stream"
    assert got.headers["Content-Disposition"].startswith("attachment; ")
    assert "filename*=UTF-8''caf%C3%A9%2Bplus.csv" in got.headers["Content-Disposition"]
    assert (
        got.headers["Content-Security-Policy"].startswith("sandbox")
        and got.headers["X-Content-Type-Options"] == "nosniff"
    )
    assert_problem(await s.call("PUT", f"{root}/in/a%20b/caf%C3%A9%2Bplus.csv", b"x"), 409, "conflict")
    assert (await s.call("PUT", f"{root}/in/a%20b/caf%C3%A9%2Bplus.csv?overwrite=1", b"x")).code == 201
    assert (await s.call("DELETE", f"{root}/in/a%20b/caf%C3%A9%2Bplus.csv")).code == 204
    assert_problem(await s.call("GET", f"{root}/in/a%20b/caf%C3%A9%2Bplus.csv"), 404, "not_found")
    assert (await s.call("PUT", f"{root}/empty", b"")).code == 201
    assert (await s.call("GET", f"{root}/empty")).body == b""


@served(upload_bytes=1000)
async def test_uploads_that_are_refused(s: Served) -> None:
    session = await s.session()
    root = f"/api/v1/sessions/{session.session_id}/files"
    assert_problem(await s.call("PUT", f"{root}/a", b"x" * 1001), 413, "too_large")
    assert_problem(await s.call("PUT", f"{root}/a", b"x", user="bob"), 404, "not_found")
    assert_problem(await s.call("PUT", f"{root}/a", b"x", user=None), 401, "unauthenticated")
    assert_problem(await s.call("PUT", f"{root}/%zz", b"x"), 400, "path_refused")
    assert_problem(await s.call("PUT", f"{root}/%ff", b"x"), 400, "bad_request")
    assert_problem(await s.call("PUT", f"{root}/a?overwrite=maybe", b"x"), 400, "bad_request")
    chunked = f"PUT {root}/a HTTP/1.1\r\nHost: x\r\nAuthorization: token alice\r\nTransfer-Encoding: chunked\r\n"
    answer = await s.raw(chunked.encode() + b"Connection: close\r\n\r\n1\r\nx\r\n0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ") and b"Content-Length" in answer
    assert not session.files


@served()
async def test_a_refusal_in_the_middle_is_told_at_once(s: Served) -> None:
    session = await s.session()
    path = f"/api/v1/sessions/{session.session_id}/files/a.refuse"
    reader, writer = await s.connect()
    head = f"PUT {path} HTTP/1.1\r\nHost: x\r\nAuthorization: token alice\r\nContent-Length: 10000000\r\n\r\n"
    writer.write(head.encode() + b"x" * 100_000)
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
    assert answer.startswith(b"HTTP/1.1 413 ")
    length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    assert json.loads(await reader.readexactly(length))["code"] == "too_large"
    writer.close()
    assert (await s.call("GET", "/api/kernels")).code == 200


@served()
async def test_a_client_that_vanishes_leaves_no_file(s: Served) -> None:
    session = await s.session()
    path = f"/api/v1/sessions/{session.session_id}/files/a.csv"
    _, writer = await s.connect()
    head = f"PUT {path} HTTP/1.1\r\nHost: x\r\nAuthorization: token alice\r\nContent-Length: 1000000\r\n\r\n"
    writer.write(head.encode() + b"x" * 300_000)
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.close()
    await until(lambda: "upload broke off" in session.calls)
    await until(lambda: len(s.deps.tasks) == 0)
    assert not session.files


@served()
async def test_a_slow_sandbox_slows_the_client_down(s: Served) -> None:
    session = await s.session()
    data = b"x" * 5_000_000
    response = await s.call("PUT", f"/api/v1/sessions/{session.session_id}/files/a.slow", data)
    assert response.code == 201 and session.files["a.slow"] == data


@served()
async def test_a_download_that_breaks_off_is_not_taken_for_whole(s: Served) -> None:
    session = await s.session()
    session.files["a.broken"] = b"x" * 200_000
    with pytest.raises(Exception):  # whichever way the client says that the connection was cut
        await AsyncHTTPClient().fetch(
            f"{s.url}/api/v1/sessions/{session.session_id}/files/a.broken", headers={"Authorization": "token alice"}
        )


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("out/report.xlsx", "attachment; filename=\"report.xlsx\"; filename*=UTF-8''report.xlsx"),
        ('a"b\\c%.txt', "attachment; filename=\"a_b_c_.txt\"; filename*=UTF-8''a%22b%5Cc%25.txt"),
        (
            "x\r\nSet-Cookie: a.txt",
            "attachment; filename=\"x__Set-Cookie: a.txt\"; filename*=UTF-8''x__Set-Cookie%3A%20a.txt",
        ),
        ("photo\u202egpj.exe", "attachment; filename=\"photo_gpj.exe\"; filename*=UTF-8''photo_gpj.exe"),
        ("日本.csv", "attachment; filename=\"__.csv\"; filename*=UTF-8''%E6%97%A5%E6%9C%AC.csv"),
        ("dir/", "attachment; filename=\"file\"; filename*=UTF-8''file"),
    ],
)
def test_the_name_of_a_download(path: str, expected: str) -> None:
    assert disposition(path) == expected
