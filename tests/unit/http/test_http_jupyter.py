"""Jupyter's REST API as its clients need it: exact codes, lenient bodies, only the caller's own."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from http_served import Served, assert_problem, js, served

from gateway.http.jupyter import kernelspecs

LAST_ACTIVITY = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")


@served()
async def test_starting_takes_any_body_and_answers_201(s: Served) -> None:
    bodies: list[Any] = [
        None,
        b"",
        b"null",
        {},
        {"name": "container"},
        {"name": None},
        {"name": "python3"},
        {"name": "", "path": None},
        {"name": "gvisor", "env": {"KERNEL_USERNAME": "x", "KERNEL_WORKING_DIR": "/nowhere"}, "unheard_of": [1]},
    ]
    for body in bodies:
        response = await s.call("POST", "/api/kernels", body)
        assert response.code == 201, (body, response.body)
        model = js(response)
        assert response.headers["Location"] == f"/api/kernels/{model['id']}"
        assert set(model) == {"id", "name", "last_activity", "execution_state", "connections"}
        assert LAST_ACTIVITY.match(model["last_activity"])
        assert model["name"] == ("container" if body == {"name": "container"} else "gvisor")
    assert_problem(await s.call("POST", "/api/kernels", {"name": "nope"}), 404, "not_found")
    assert_problem(await s.call("POST", "/api/kernels", b"{"), 400, "bad_request")
    assert_problem(await s.call("POST", "/api/kernels", b"[1]"), 400, "bad_request")
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert (await s.call("POST", "/api/kernels", {"name": "gvisor"}, headers=form)).code == 201


@served()
async def test_a_kernels_life(s: Served) -> None:
    kernel_id = js(await s.call("POST", "/api/kernels"))["id"]
    session = s.gateway.held[kernel_id]
    path = f"/api/kernels/{kernel_id}"
    assert js(await s.call("GET", f"{path}?1700000000000"))["id"] == kernel_id
    assert [m["id"] for m in js(await s.call("GET", "/api/kernels?1700000000000"))] == [kernel_id]
    for body in (None, {}, {"any": 1}, b"not json at all"):
        assert (await s.call("POST", f"{path}/interrupt", body)).code == 204
    response = await s.call("POST", f"{path}/restart", {})
    assert response.code == 200 and js(response)["id"] == kernel_id
    response = await s.call("DELETE", path)
    assert response.code == 204 and response.body == b""
    assert session.calls[-1] == ("end", "alice")
    assert_problem(await s.call("GET", path), 404, "not_found")
    assert_problem(await s.call("DELETE", path), 404, "not_found")
    assert_problem(await s.call("POST", f"{path}/restart"), 404, "not_found")
    assert js(await s.call("GET", "/api/kernels")) == []


@served()
async def test_foreign_is_unknown(s: Served) -> None:
    kernel_id = js(await s.call("POST", "/api/kernels"))["id"]
    for user in ("bob", "alice/t2", "root/t1/admin"):
        assert js(await s.call("GET", "/api/kernels", user=user)) == []
        foreign = await s.call("GET", f"/api/kernels/{kernel_id}", user=user)
        unknown = await s.call("GET", "/api/kernels/s-999", user=user)
        assert_problem(foreign, 404, "not_found")
        assert foreign.body == unknown.body
        for method, tail in (("DELETE", ""), ("POST", "/interrupt"), ("POST", "/restart")):
            assert (await s.call(method, f"/api/kernels/{kernel_id}{tail}", user=user)).code == 404
    assert not s.gateway.held[kernel_id].ended


@served()
async def test_version_status_and_specs(s: Served) -> None:
    assert isinstance(js(await s.call("GET", "/api"))["version"], str)
    await s.session()
    status = js(await s.call("GET", "/api/status"))
    assert status["kernels"] == 1 and status["connections"] == 0
    assert LAST_ACTIVITY.match(status["started"]) and LAST_ACTIVITY.match(status["last_activity"])
    specs = js(await s.call("GET", "/api/kernelspecs?user=alice"))
    assert specs["default"] == "gvisor" and set(specs["kernelspecs"]) == {"gvisor", "container", "python3"}
    for name, model in specs["kernelspecs"].items():
        assert model["name"] == name and model["resources"] == {}
        assert isinstance(model["spec"]["argv"], list) and isinstance(model["spec"]["interrupt_mode"], str)
        assert js(await s.call("GET", f"/api/kernelspecs/{name}")) == model
    assert_problem(await s.call("GET", "/api/kernelspecs/nope"), 404, "not_found")
    assert_problem(await s.call("GET", "/kernelspecs/gvisor/logo-64x64.png"), 404, "not_found")


def test_the_default_is_always_listed() -> None:
    profiles = {"profiles": [{"name": "gvisor", "available": False}], "default": "gvisor"}
    specs = kernelspecs(profiles)
    assert specs["default"] in specs["kernelspecs"]


@served()
async def test_notebook_sessions(s: Served) -> None:
    body = {"path": "a.ipynb", "name": "a", "type": "notebook", "kernel": {"name": "container"}}
    response = await s.call("POST", "/api/sessions", body)
    assert response.code == 201
    model = js(response)
    assert all(isinstance(model[key], str) for key in ("id", "path", "name", "type"))
    assert model["kernel"]["name"] == "container"
    again = js(await s.call("POST", "/api/sessions", body))
    assert again["id"] == model["id"] and again["kernel"]["id"] == model["kernel"]["id"]
    assert js(await s.call("GET", "/api/sessions"))[0]["id"] == model["id"]
    assert js(await s.call("GET", "/api/sessions", user="bob")) == []
    path = f"/api/sessions/{model['id']}"
    assert_problem(await s.call("GET", path, user="bob"), 404, "not_found")
    moved = js(await s.call("PATCH", path, {"path": "b.ipynb"}))
    assert moved["path"] == "b.ipynb" and moved["id"] == model["id"] and moved["kernel"]["id"] == model["kernel"]["id"]
    changed = js(await s.call("PATCH", path, {"kernel": {"name": "gvisor"}}))
    assert changed["kernel"]["id"] != model["kernel"]["id"] and changed["kernel"]["name"] == "gvisor"
    assert s.gateway.held[model["kernel"]["id"]].ended
    assert (await s.call("DELETE", path)).code == 204
    assert s.gateway.held[changed["kernel"]["id"]].ended
    assert (await s.call("DELETE", path)).code == 404
    assert_problem(await s.call("POST", "/api/sessions", {"kernel": {"name": "gvisor"}}), 400, "bad_request")


@served()
async def test_a_notebook_whose_kernel_is_gone_gets_a_new_one(s: Served) -> None:
    first = js(await s.call("POST", "/api/sessions", {"path": "a.ipynb"}))
    await s.call("DELETE", f"/api/kernels/{first['kernel']['id']}")
    assert js(await s.call("GET", "/api/sessions")) == []
    second = js(await s.call("POST", "/api/sessions", {"path": "a.ipynb"}))
    assert second["id"] != first["id"] and second["kernel"]["id"] != first["kernel"]["id"]


@served()
async def test_one_path_asked_for_twice_at_once_is_one_kernel(s: Served) -> None:
    s.gateway.create_delay_s = 0.05
    models = [js(r) for r in await asyncio.gather(*(s.call("POST", "/api/sessions", {"path": "a"}) for _ in range(8)))]
    assert len({m["kernel"]["id"] for m in models}) == 1 and len(s.gateway.held) == 1


@served()
async def test_an_existing_kernel_is_taken_by_id(s: Served) -> None:
    kernel_id = js(await s.call("POST", "/api/kernels"))["id"]
    model = js(await s.call("POST", "/api/sessions", {"path": "a", "kernel": {"id": kernel_id}}))
    assert model["kernel"]["id"] == kernel_id
    foreign = await s.call("POST", "/api/sessions", {"path": "b", "kernel": {"id": kernel_id}}, user="bob")
    assert_problem(foreign, 404, "not_found")
