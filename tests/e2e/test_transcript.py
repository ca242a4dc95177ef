"""Transcripts and rebuilds over REST, on a real engine: kept over ``kill -9``, exported, deleted, run again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import nbformat
import pytest
from e2e_clients import Events, Kernel
from e2e_gateway import Gateway

pytestmark = pytest.mark.engine
Json = dict[str, Any]
FRAME = "import pandas as pd\ndf = pd.DataFrame({'a': [1, 2, 3]})\ndf"
CHART = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3]);"


@pytest.fixture
def session(gateway: Gateway, profile: str) -> Iterator[str]:
    made = gateway.call("POST", "/api/v1/sessions", {"profile": profile, "name": "Q3 / sales"}, expect=201).json()["session_id"]
    gateway.wait_state(made, "active")
    yield f"/api/v1/sessions/{made}"
    gateway.call("DELETE", f"/api/v1/sessions/{made}")


def run(gateway: Gateway, session: str, code: str) -> Json:
    return gateway.run_code(session.rsplit("/", 1)[1], code)


def cells(gateway: Gateway, session: str, query: str = "") -> list[Json]:
    found: list[Json] = gateway.call("GET", f"{session}/transcript{query}", expect=200).json()["cells"]
    return found


def recycle(gateway: Gateway, session: str) -> None:
    gateway.call("POST", f"{session}/recycle", expect=202)
    gateway.wait_state(session.rsplit("/", 1)[1], "dormant")


def finished(gateway: Gateway, session: str) -> Json:
    deadline = time.monotonic() + 90
    while (found := gateway.call("GET", f"{session}/rebuild", expect=200).json())["state"] == "running":
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return dict(found)


def test_a_notebook_of_what_was_run_and_a_rebuild_of_it(gateway: Gateway, session: str) -> None:
    for code in (FRAME, CHART, "total = df['a'].sum()\nprint('total', total)", "1 / 0"):
        run(gateway, session, code)
    kept = cells(gateway, session)
    assert [c["exit_reason"] for c in kept] == ["ok", "ok", "ok", "code_error"]
    assert "<table" in kept[0]["outputs"][0]["data"]["text/html"]
    assert "image/png" in kept[1]["outputs"][-1]["data"]
    assert kept[3]["outputs"][-1]["ename"] == "ZeroDivisionError"

    recycle(gateway, session)
    events = Events(gateway, session.rsplit("/", 1)[1])
    began = gateway.call("POST", f"{session}/rebuild", {}, expect=202)
    assert began.headers["Location"] == f"{session}/rebuild" and began.json()["total"] == 3
    done = finished(gateway, session)
    assert (done["state"], done["done"], done["stopped_at"]) == ("done", 3, None)
    assert {"df", "total"} <= set(done["back"]) and not {"df", "total"} & set(done["missing"])
    seen = events.until(lambda event, data: event == "rebuild" and data["rebuild"]["state"] != "running")
    assert [d["rebuild"]["done"] for _, event, d in seen if event == "rebuild"][-1] == 3
    events.close()
    assert run(gateway, session, "print(total + len(df))")["stdout"].strip() == "9"

    answer = gateway.call("GET", f"{session}/notebook", expect=200)
    assert answer.headers["Content-Disposition"].startswith('attachment; filename="Q3 _ sales.ipynb"')
    book = nbformat.reads(answer.text, as_version=4)
    nbformat.validate(book, relax_add_props=False)
    assert [c.cell_type for c in book.cells] == ["code"] * 4 + ["markdown"] + ["code"] * 4
    assert "total" in book.cells[4].source and "image/png" in book.cells[6].outputs[-1].data
    assert [c.id for c in book.cells[:4]] == [c["execution_id"] for c in kept]


def test_it_stops_at_the_first_error_and_the_rest_can_be_chosen_again(gateway: Gateway, session: str) -> None:
    run(gateway, session, "open('mark', 'w').write('1')\na = 1")
    run(gateway, session, "assert open('mark').read() == '1'\nb = 2")
    run(gateway, session, "c = a + b")
    run(gateway, session, "import os; os.rename('mark', 'mark2')")
    recycle(gateway, session)
    first, second, third, _ = (c["execution_id"] for c in cells(gateway, session, "?outputs=0"))
    gateway.call("POST", f"{session}/rebuild", {"cells": [third, second]}, expect=202)
    stopped = finished(gateway, session)
    assert (stopped["state"], stopped["done"]) == ("stopped", 1)
    assert stopped["stopped_at"] == {"cell": second, "execution_id": stopped["cells"][0]["execution_id"], "exit_reason": "code_error"}
    assert stopped["cells"][1] == {"cell": third, "execution_id": None, "exit_reason": None}
    assert {"a", "b", "c"} <= set(stopped["missing"]) and stopped["back"] == []
    gateway.call("POST", f"{session}/rebuild", {"cells": [third, first, second]}, expect=202)
    assert {"a", "b", "c"} <= set(finished(gateway, session)["back"])


def test_bad_requests_and_foreign_sessions(gateway: Gateway, session: str) -> None:
    mine = run(gateway, session, "x = 1")["execution_id"]
    theirs = Kernel.start(gateway, user="mallory")
    for method, tail in (("GET", "transcript"), ("DELETE", "transcript"), ("GET", "notebook"), ("GET", "rebuild"), ("POST", "rebuild")):
        foreign = gateway.call(method, f"{session}/{tail}", {} if method == "POST" else None, user="mallory", expect=404).json()
        unknown = gateway.call(method, f"/api/v1/sessions/nobody/{tail}", {} if method == "POST" else None, user="mallory", expect=404).json()
        assert foreign == unknown
    other = f"/api/v1/sessions/{theirs.kernel_id}"
    foreign, unknown = (
        gateway.call("POST", f"{other}/rebuild", {"cells": [each]}, user="mallory", expect=404).json() | {"cells": []} for each in (mine, "f" * 24)
    )
    assert foreign == unknown
    theirs.end()
    for body in (
        {"cells": "all"}, {"cells": [1]}, {"cells": [None]}, {"cells": ["x" * 200]}, {"cells": ["y"] * 201}, {"which": []}, {"timeout_s": 0}, [],
    ):  # fmt: skip
        gateway.call("POST", f"{session}/rebuild", body, expect=400)
    for query in ("?after=-1", "?after=x", "?limit=1.5", "?outputs=maybe"):
        gateway.call("GET", f"{session}/transcript{query}", expect=400)
    gateway.call("POST", f"{session}/rebuild", {"cells": []}, expect=409)
    gateway.call("GET", f"{session}/rebuild", expect=404)
    gateway.call("POST", f"{session}/rebuild", {}, expect=409)
    assert len(cells(gateway, session)) == 1, "nothing of this was run"


def test_it_survives_kill_9_and_deletion_is_complete(start_gateway: Callable[..., Gateway]) -> None:
    gateway = start_gateway(SANDGLASS_TRANSCRIPT_TENANTS="t2=off")
    session_id = gateway.call("POST", "/api/v1/sessions", {"profile": "container"}, expect=201).json()["session_id"]
    session = f"/api/v1/sessions/{session_id}"
    run(gateway, session, "word = 'planted-early'")
    gateway.call("POST", f"{session}/executions", {"code": "import time\nprint('planted-running')\ntime.sleep(3)\nlate = 1"}, expect=202)
    time.sleep(1.0)
    gateway.kill()
    gateway.start()
    deadline = time.monotonic() + 60
    while len(found := cells(gateway, session)) < 2:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    assert found[1]["outputs"][0]["text"] == "planted-running\n" and found[1]["exit_reason"] == "ok"

    assert gateway.call("GET", f"{session}/transcript", expect=200).json()["policy"] == "full"
    gateway.call("DELETE", f"{session}/transcript", expect=204)
    assert cells(gateway, session) == []
    result = run(gateway, session, "print(late)")
    assert result["stdout"].strip() == "1", "variables are not part of it"
    gateway.call("DELETE", session, expect=202)
    gateway.wait_state(session_id, "ended")
    assert [c["code"] for c in cells(gateway, session)] == ["print(late)"], "an ended session's is kept"
    audit = gateway.call("GET", "/api/v1/admin/audit", token=gateway.token("boss", "t1", "tenant_admin"), expect=200).json()["audit"]
    assert [a["detail"]["count"] for a in audit if a["tag"] == "user:transcript:delete"] == [2]
    assert gateway.stop() == 0
    holds = [path.name for path in gateway.state.rglob("*") if path.is_file() and b"planted-" in path.read_bytes()]
    assert holds == [], "neither records, journal nor log"


def test_a_policy_of_a_tenant(start_gateway: Callable[..., Gateway]) -> None:
    gateway = start_gateway(SANDGLASS_TRANSCRIPT_TENANTS="t2=hash")
    token = gateway.token("carol", "t2")
    made = gateway.call("POST", "/api/v1/sessions", {"profile": "container"}, token=token, expect=201).json()["session_id"]
    session = f"/api/v1/sessions/{made}"
    gateway.call("POST", f"{session}/executions?wait=60", {"code": "print('planted')"}, token=token, expect=200)
    told = gateway.call("GET", f"{session}/transcript", token=token, expect=200).json()
    assert told["policy"] == "hash" and told["cells"][0]["code"] is None and "planted" not in json.dumps(told)
    assert len(told["cells"][0]["code_sha256"]) == 64
    book = nbformat.reads(gateway.call("GET", f"{session}/notebook", token=token, expect=200).text, as_version=4)
    nbformat.validate(book)
    assert book.cells[0].cell_type == "markdown"
