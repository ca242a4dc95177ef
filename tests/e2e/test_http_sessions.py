"""The native API against real kernels: sessions, executions, event streams, files."""

from __future__ import annotations

import gzip
import hashlib
import threading
import time
from collections.abc import Callable

import pytest
import requests
from e2e_clients import Events, Kernel
from e2e_gateway import Gateway


@pytest.fixture
def session(kernel: Kernel) -> str:
    return kernel.kernel_id


def test_an_execution_over_rest(gateway: Gateway, session: str) -> None:
    done = gateway.run_code(session, "print('out')\nimport sys\nprint('err', file=sys.stderr)\n6 * 7")
    assert done["state"] == "finished" and done["status"] == "ok" and done["exit_reason"] == "ok"
    assert done["stdout"] == "out\n" and done["stderr"] == "err\n"
    assert done["results"][-1]["data"]["text/plain"] == "42" and done["results"][-1]["is_main_result"]
    failed = gateway.run_code(session, "1/0")
    assert failed["status"] == "error" and failed["exit_reason"] == "code_error"
    assert failed["error"]["name"] == "ZeroDivisionError" and failed["next_action"] == "fix_code"
    assert gateway.run_code(session, "def (")["exit_reason"] == "syntax_error"
    assert gateway.run_code(session, "import nonesuch")["exit_reason"] == "dependency_missing"
    assert gateway.run_code(session, "input('?')")["status"] == "error"
    timed = gateway.run_code(session, "while True: pass", timeout_s=1)
    assert timed["exit_reason"] == "timeout" and timed["status"] == "timeout"
    assert gateway.run_code(session, "print('alive')")["stdout"] == "alive\n"
    listed = gateway.call("GET", f"/api/v1/sessions/{session}/executions").json()["executions"]
    assert [e["exit_reason"] for e in listed[:2]] == ["ok", "code_error"] and "stdout" not in listed[0]


def test_a_quick_202_and_a_later_look(gateway: Gateway, session: str) -> None:
    path = f"/api/v1/sessions/{session}/executions"
    queued = gateway.call("POST", path, {"code": "import time; time.sleep(1); print('done')"}, expect=202)
    execution_id = queued.json()["execution_id"]
    assert queued.headers["Location"].endswith(execution_id)
    done = gateway.call("GET", f"{path}/{execution_id}?wait=60", expect=200).json()
    assert done["state"] == "finished" and done["stdout"] == "done\n"


def test_cancelling(gateway: Gateway, session: str) -> None:
    path = f"/api/v1/sessions/{session}/executions"
    gateway.run_code(session, "pass")
    running = gateway.call("POST", path, {"code": "import time; time.sleep(600)"}).json()["execution_id"]
    waiting = gateway.call("POST", path, {"code": "print('never')"}).json()["execution_id"]
    time.sleep(1)
    assert gateway.call("DELETE", f"{path}/{waiting}").status_code == 200
    assert gateway.call("DELETE", f"{path}/{running}").status_code == 200
    for execution_id in (waiting, running):
        done = gateway.call("GET", f"{path}/{execution_id}?wait=60").json()
        assert done["state"] == "finished" and done["exit_reason"] == "interrupted", done
    assert gateway.run_code(session, "print('alive')")["stdout"] == "alive\n"


def test_the_generation_that_an_agent_expects(gateway: Gateway, session: str) -> None:
    gateway.run_code(session, "df = 1")
    generation = gateway.call("GET", f"/api/v1/sessions/{session}").json()["generation"]
    assert gateway.run_code(session, "df", expect_generation=generation)["status"] == "ok"
    restarted = gateway.call("POST", f"/api/v1/sessions/{session}/restart", expect=200).json()
    assert restarted["generation"] == generation + 1
    path = f"/api/v1/sessions/{session}/executions"
    refused = gateway.call("POST", path, {"code": "df", "expect_generation": generation}, expect=409).json()
    assert refused["code"] == "generation_mismatch" and "df" in str(refused["lost_variables"])


def test_an_event_stream_tells_everything_once(gateway: Gateway, session: str) -> None:
    gateway.run_code(session, "pass")
    events = Events(gateway, session)
    first = next(iter(events))
    assert first[0] is None and first[1] == "session" and first[2]["session"]["session_id"] == session
    execution_id = gateway.run_code(session, "for n in range(50): print(n, flush=True)")["execution_id"]

    def finished(event: str, data: dict) -> bool:  # type: ignore[type-arg]
        return event == "execution" and data["execution"]["execution_id"] == execution_id and data["execution"]["state"] == "finished"

    seen = events.until(finished)
    events.close()
    ids = [i for i, _, _ in seen if i is not None]
    assert ids == sorted(set(ids))
    mine = [d for _, e, d in seen if e == "message" and d["execution_id"] == execution_id]
    text = "".join(d["content"]["text"] for d in mine if d["msg_type"] == "stream")
    assert text.split() == [str(n) for n in range(50)]
    assert {"status", "execute_input", "execute_reply"} <= {d["msg_type"] for d in mine}
    states = [d["execution"]["state"] for _, e, d in seen if e == "execution"]
    assert states == [word for word in ("queued", "running", "finished") if word in states], "a short one is told of as it is after a moment"
    # resuming in the middle gives the rest, exactly
    middle = ids[len(ids) // 2]
    rest = Events(gateway, session, after=middle).until(finished)
    assert [i for i, _, _ in rest if i is not None] == [i for i in ids if i > middle]


def test_upload_list_download(gateway: Gateway, session: str) -> None:
    data = bytes(range(256)) * 20_000
    root = f"/api/v1/sessions/{session}/files"
    made = gateway.call("PUT", f"{root}/sales%20%C3%A9.csv", data, expect=201).json()
    assert (made["path"], made["size"], made["sha256"]) == ("in/sales é.csv", len(data), hashlib.sha256(data).hexdigest())
    assert gateway.call("GET", f"/api/v1/artifacts/{made['artifact_id']}", expect=200).content == data
    assert gateway.call("PUT", f"{root}/sales%20%C3%A9.csv", data).status_code == 409
    code = "import hashlib; print(hashlib.sha256(open('in/sales é.csv','rb').read()).hexdigest())"
    assert gateway.run_code(session, code)["stdout"].strip() == made["sha256"]
    assert gateway.run_code(session, "open('in/sales é.csv', 'w')")["status"] == "error"  # read-only to code
    gateway.run_code(session, "import os; os.makedirs('out', exist_ok=True); open('out/r.txt','w').write('result')")
    listed = {f["path"]: f for f in gateway.call("GET", root).json()["files"]}
    assert listed["out/r.txt"]["declared"] and "in/sales é.csv" in listed
    got = gateway.call("GET", f"{root}/out/r.txt", expect=200)
    assert got.content == b"result" and got.headers["Content-Disposition"].startswith("attachment;")
    assert got.headers["Content-Security-Policy"].startswith("sandbox")
    back = gateway.call("GET", f"{root}/in/sales%20%C3%A9.csv", expect=200)
    assert back.content == data
    for bad in ("..%2f..%2fx", "in/../../x", "%00", "out//x", "/etc/passwd"):
        response = gateway.call("PUT", f"{root}/{bad}", b"x")
        assert response.status_code in (400, 404), (bad, response.status_code, response.text)
    assert gateway.call("DELETE", f"{root}/out/r.txt").status_code == 204
    assert gateway.call("GET", f"{root}/out/r.txt").status_code == 404


def test_foreign_sessions_are_unknown(gateway: Gateway, session: str) -> None:
    unknown = gateway.call("GET", "/api/v1/sessions/00000000-0000-4000-8000-000000000000", user="bob")
    tails = [
        ("GET", ""),
        ("DELETE", ""),
        ("GET", "/files"),
        ("GET", "/events"),
        ("GET", "/executions"),
        ("POST", "/keep-alive"),
    ]
    for method, tail in tails:
        foreign = gateway.call(method, f"/api/v1/sessions/{session}{tail}", user="bob")
        assert (foreign.status_code, foreign.content) == (unknown.status_code, unknown.content), (method, tail)
    assert session not in gateway.call("GET", "/api/v1/sessions", user="bob").text


def test_ending(gateway: Gateway, profile: str) -> None:
    kernel = Kernel.start(gateway, profile)
    session = kernel.kernel_id
    gateway.run_code(session, "import os; os.makedirs('out', exist_ok=True); open('out/kept.txt','w').write('kept')")
    events = Events(gateway, session)
    assert gateway.call("DELETE", f"/api/v1/sessions/{session}").status_code == 202
    assert events.until(lambda event, _: event == "bye")[-1][2]["code"] == "session_ended"
    ended = gateway.wait_state(session, "ended")
    assert ended["reason"] == "user" and ended["ended_at"]
    got = gateway.call("GET", f"/api/v1/sessions/{session}/files/out/kept.txt", expect=200)
    assert got.content == b"kept"
    refused = gateway.call("POST", f"/api/v1/sessions/{session}/executions", {"code": "1"}, expect=410).json()
    assert refused["code"] == "session_ended"


def test_a_waiting_client_that_leaves_stops_nothing(gateway: Gateway, session: str) -> None:
    gateway.run_code(session, "pass")
    path = f"/api/v1/sessions/{session}/executions"
    with pytest.raises(requests.exceptions.ReadTimeout):
        gateway.call("POST", f"{path}?wait=60", {"code": "import time; time.sleep(2); print('went on')"}, timeout=0.5)
    time.sleep(3)
    assert gateway.call("GET", path).json()["executions"][-1]["exit_reason"] == "ok"


def test_two_streams_see_the_same(gateway: Gateway, session: str) -> None:
    gateway.run_code(session, "pass")
    streams = [Events(gateway, session) for _ in range(2)]
    got: list[list[int]] = [[], []]

    def read(number: int) -> None:
        seen = streams[number].until(lambda event, data: event == "message" and data["msg_type"] == "execute_reply")
        got[number] = [i for i, event, _ in seen if i is not None and event == "message"]

    threads = [threading.Thread(target=read, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    gateway.run_code(session, "for n in range(20): print(n, flush=True)")
    for thread in threads:
        thread.join(60)
    assert got[0] and got[0] == got[1]
    for stream in streams:
        stream.close()


def test_health(gateway: Gateway) -> None:
    for path in ("/healthz", "/readyz"):
        response = requests.get(gateway.url + path, timeout=30)
        assert response.status_code == 200 and response.json()["status"] == "ok", response.text
        assert response.json()["checks"]["engine"] == "ok"


def test_archives_and_links(gateway: Gateway, session: str) -> None:
    """What is refused on its way in, what is kept and not handed out, and a link to what is."""
    root = f"/api/v1/sessions/{session}"
    bomb = gzip.compress(bytes(60 * 1024**2))
    refused = gateway.call("PUT", f"{root}/files/bomb.gz", bomb)
    assert (refused.status_code, refused.json()["code"], refused.json()["rule"]) == (422, "artifact_rejected", "archive_ratio")
    refused = gateway.call("PUT", f"{root}/files/table.csv", bomb)
    assert (refused.status_code, refused.json()["rule"], refused.json()["mime"]) == (422, "type_mismatch", "application/gzip")
    code = """
import io, os, zipfile
os.makedirs("out", exist_ok=True)
for name, entry in (("bad", "../../x"), ("good", "a/b.csv")):
    with zipfile.ZipFile(f"out/{name}.zip", "w") as z:
        z.writestr(entry, "a,b")
import pandas as pd
pd.DataFrame({"a": [1, 2]}).to_excel("out/book.xlsx", index=False)
pd.DataFrame({"a": [1, 2]}).to_parquet("out/table.parquet")
import matplotlib.pyplot as plt
plt.plot([1, 2]); plt.savefig("out/plot.png"); plt.savefig("out/plot.svg"); plt.savefig("out/plot.pdf"); plt.close()
"""
    assert gateway.run_code(session, code)["exit_reason"] == "ok"

    def verdicts() -> dict[str, str]:
        return {a["path"]: a["verdict"] for a in gateway.call("GET", f"{root}/artifacts").json()["artifacts"]}

    names = {"bad.zip", "good.zip", "book.xlsx", "table.parquet", "plot.png", "plot.svg", "plot.pdf"}
    deadline = time.monotonic() + 60
    while (found := verdicts()).keys() != {f"out/{name}" for name in names} or "" in found.values():
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    assert {path: verdict for path, verdict in found.items() if verdict != "ok"} == {"out/bad.zip": "archive_path"}
    artifacts = {a["path"]: a for a in gateway.call("GET", f"{root}/artifacts").json()["artifacts"]}
    assert artifacts["out/book.xlsx"]["mime"].endswith("spreadsheetml.sheet")
    assert [artifacts[f"out/plot.{e}"]["mime"] for e in ("png", "svg", "pdf")] == ["image/png", "image/svg+xml", "application/pdf"]
    for path in (f"{root}/files/out/bad.zip", f"/api/v1/artifacts/{artifacts['out/bad.zip']['artifact_id']}"):
        assert gateway.call("GET", path).json()["rule"] == "archive_path"
    good = f"/api/v1/artifacts/{artifacts['out/good.zip']['artifact_id']}"
    link = gateway.call("POST", f"{good}/link", {}, expect=201).json()["url"].removeprefix(gateway.url)
    assert gateway.call("GET", link, expect=200).content == gateway.call("GET", f"{root}/files/out/good.zip", expect=200).content
    assert gateway.call("GET", link, user="bob").status_code == 404
    gateway.call("POST", f"{root}/recycle", expect=202)
    gateway.wait_state(session, "dormant")
    gateway.run_code(session, "1")
    restored = {f["path"]: f["sha256"] for f in gateway.call("GET", root).json()["restored_files"]}
    assert restored == {path: a["sha256"] for path, a in artifacts.items()}
    gateway.call("DELETE", good, expect=204)
    assert gateway.call("GET", link).status_code == 404


def test_pictures_are_encoded_anew(start_gateway: Callable[..., Gateway]) -> None:
    gateway = start_gateway(SANDGLASS_DEFAULT_PROFILE="container")
    session = gateway.call("POST", "/api/v1/sessions", {}, expect=201).json()["session_id"]
    root = f"/api/v1/sessions/{session}/files"
    code = """
import os; os.makedirs("out", exist_ok=True)
from PIL import Image
picture = Image.new("RGBA", (40, 30), (10, 200, 30, 128))
picture.save("out/a.png"); picture.convert("RGB").save("out/a.jpg", exif=b"Exif\\0\\0secret place"); picture.convert("P").save("out/a.gif")
picture.save("out/a.webp")
[open(f"out/a.{kind}", "ab").write(b"<script>hidden</script>") for kind in ("png", "jpg", "gif", "webp")]
open("out/fake.png", "wb").write(b"\\x89PNG\\r\\n\\x1a\\n" + b"x" * 5000)
"""
    assert gateway.run_code(session, code)["exit_reason"] == "ok"
    for kind, begins in (("png", b"\x89PNG"), ("jpg", b"\xff\xd8\xff"), ("gif", b"GIF8"), ("webp", b"RIFF")):
        picture = gateway.call("GET", f"{root}/out/a.{kind}", expect=200).content
        assert picture.startswith(begins) and b"hidden" not in picture and b"secret" not in picture
    refused = gateway.call("GET", f"{root}/out/fake.png")
    assert (refused.status_code, refused.json()["rule"]) == (422, "picture_unreadable")
    gateway.call("POST", f"/api/v1/sessions/{session}/recycle", expect=202)
    gateway.wait_state(session, "dormant")
    ids = {a["path"]: a for a in gateway.call("GET", f"/api/v1/sessions/{session}/artifacts").json()["artifacts"]}
    stored = ids["out/a.png"]
    for _ in range(2):
        got = gateway.call("GET", f"/api/v1/artifacts/{stored['artifact_id']}", expect=200)
        assert got.content.startswith(b"\x89PNG") and b"hidden" not in got.content
    original = gateway.run_code(session, "import hashlib; print(hashlib.sha256(open('out/a.png', 'rb').read()).hexdigest())")
    assert original["stdout"].strip() == stored["sha256"]
