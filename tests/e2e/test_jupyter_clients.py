"""Public clients, unchanged: jupyter-kernel-client, a Jupyter server in front (``--gateway-url``), nbclient."""

from __future__ import annotations

import functools
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest
import requests
import websocket
from e2e_gateway import Gateway
from jupyter_kernel_client import JupyterKernelClient
from nbclient import NotebookClient


def test_jupyter_kernel_client(gateway: Gateway, profile: str) -> None:
    """Bearer on REST, ``?token=`` on the websocket, the default framing."""
    client = JupyterKernelClient(server_url=gateway.url, token=gateway.token("kai"))
    client.start(name=profile)
    try:
        result = client.execute("import os\nprint('hi')\n6 * 7")
        assert result["status"] == "ok" and result["execution_count"] == 1
        outputs = {o["output_type"]: o for o in result["outputs"]}
        assert outputs["stream"]["text"] == "hi\n" and outputs["execute_result"]["data"]["text/plain"] == "42"
        client.execute("given = 5")
        assert client.execute("given + 1")["outputs"][0]["data"]["text/plain"] == "6"
        failed = client.execute("1/0")
        assert failed["status"] == "error" and failed["outputs"][0]["ename"] == "ZeroDivisionError"
        assert client.is_alive()
        client.restart()
        assert client.execute("print('given' in dir())")["outputs"][-1]["text"] == "False\n"
        assert client.id in [k["id"] for k in client.list_kernels()]
    finally:
        client.stop()
    assert gateway.call("GET", "/api/kernels", user="kai").json() == []


@dataclass
class Front:
    """A Jupyter server whose kernels are the gateway's."""

    url: str
    token: str

    def call(self, method: str, path: str, **kwargs: Any) -> requests.Response:
        headers = {"Authorization": f"token {self.token}"}
        return requests.request(method, self.url + path, headers=headers, timeout=60, **kwargs)


@pytest.fixture(scope="module")
def front(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp("front")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(16)
    env = {k: v for k, v in os.environ.items() if not k.startswith("JUPYTER")} | {
        "JUPYTER_GATEWAY_AUTH_TOKEN": gateway.token("fiona"),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "JUPYTER_NO_CONFIG": "1",
        "HOME": str(folder),
    }
    log = (folder / "log").open("wb")
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "jupyter_server",
            f"--gateway-url={gateway.url}",
            "--ServerApp.ip=127.0.0.1",
            f"--ServerApp.port={port}",
            f"--IdentityProvider.token={token}",
            "--ServerApp.open_browser=False",
            "--ServerApp.allow_root=True",
            f"--ServerApp.root_dir={folder}",
        ],
        env=env,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    front = Front(f"http://127.0.0.1:{port}", token)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                if front.call("GET", "/api/status").status_code == 200:
                    break
            except requests.ConnectionError:
                pass
            assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()[-3000:]
            time.sleep(0.2)
        yield front
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


def test_a_front_server_lists_our_specs(front: Front) -> None:
    specs = front.call("GET", "/api/kernelspecs").json()
    assert specs["default"] in specs["kernelspecs"]
    assert all(isinstance(s["spec"]["argv"], list) for s in specs["kernelspecs"].values())


def test_a_kernel_through_a_front_server(front: Front, gateway: Gateway, profile: str) -> None:
    model = front.call("POST", "/api/kernels", json={"name": profile})
    assert model.status_code == 201, model.text
    kernel_id = model.json()["id"]
    assert front.call("GET", f"/api/kernels/{kernel_id}").status_code == 200
    ws = _front_socket(front, kernel_id, "s1")
    assert _run(ws, "x = 41\nprint(x + 1)") == "42\n"
    assert front.call("POST", f"/api/kernels/{kernel_id}/interrupt").status_code == 204
    assert front.call("POST", f"/api/kernels/{kernel_id}/restart").status_code == 200
    assert _run(ws, "print('x' in dir())").endswith("False\n")
    ws.close()
    assert front.call("DELETE", f"/api/kernels/{kernel_id}").status_code == 204
    assert gateway.call("GET", f"/api/kernels/{kernel_id}", user="fiona").status_code == 404


def test_a_session_of_a_front_server(front: Front, profile: str) -> None:
    body = {"path": "n.ipynb", "name": "n", "type": "notebook", "kernel": {"name": profile}}
    made = front.call("POST", "/api/sessions", json=body)
    assert made.status_code == 201, made.text
    kernel_id = made.json()["kernel"]["id"]
    ws = _front_socket(front, kernel_id, "s2")
    assert _run(ws, "print('through a session')") == "through a session\n"
    ws.close()
    assert front.call("DELETE", f"/api/sessions/{made.json()['id']}").status_code == 204


def _front_socket(front: Front, kernel_id: str, session_id: str) -> websocket.WebSocket:
    url = (
        front.url.replace("http", "ws", 1)
        + f"/api/kernels/{kernel_id}/channels?session_id={session_id}&token={front.token}"
    )
    return websocket.create_connection(url, timeout=60, suppress_origin=True)


def _run(ws: websocket.WebSocket, code: str) -> str:
    """Execute in the default framing, which a front server speaks to us; what it printed."""
    from gateway.protocol import jupyter

    header = jupyter.make_header("execute_request", "front")
    content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
    message = {"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": content}
    ws.send(json.dumps(message))
    printed, missing = "", {"reply", "idle"}
    while missing:
        m = json.loads(ws.recv())
        if m["parent_header"].get("msg_id") != header["msg_id"]:
            continue
        if m["msg_type"] == "stream" and m["content"]["name"] == "stdout":
            printed += m["content"]["text"]
        elif m["msg_type"] == "execute_reply":
            missing.discard("reply")
        elif m["msg_type"] == "status" and m["content"]["execution_state"] == "idle":
            missing.discard("idle")
    return printed


NOTEBOOK_CODE = """
import pandas as pd
import matplotlib.pyplot as plt
df = pd.DataFrame({'region': ['n', 's', 'n'], 'amount': [1, 2, 3]})
totals = df.groupby('region').amount.sum()
totals.plot.bar()
plt.show()
totals
"""


def test_nbclient_executes_a_notebook(
    gateway: Gateway, profile: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Through jupyter_server's GatewayKernelManager, with two defects of that client (version 2.21) mended: its websocket
    sends no credentials, and while it waits for a kernel it asks the wrong method whether the kernel lives.
    """
    from jupyter_server.gateway import managers
    from jupyter_server.gateway.gateway_client import GatewayClient

    token = gateway.token("nadia")
    GatewayClient.clear_instance()
    client = GatewayClient.instance()
    client.url, client.auth_token = gateway.url, token
    connect = functools.partial(websocket.create_connection, header=[f"Authorization: token {token}"])
    monkeypatch.setattr(managers.websocket, "create_connection", connect)
    monkeypatch.setattr(managers.GatewayKernelManager, "_async_is_alive", managers.GatewayKernelManager.is_alive)
    notebook = nbformat.v4.new_notebook()
    sources = ["x = 20\nprint('start')", NOTEBOOK_CODE, "x + 22", "import sys\nprint('err', file=sys.stderr)"]
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    manager = "jupyter_server.gateway.managers.GatewayKernelManager"
    runner = NotebookClient(
        notebook,
        timeout=120,
        kernel_name=profile,
        kernel_manager_class=manager,
        resources={"metadata": {"path": str(tmp_path)}},
    )
    try:
        runner.execute()
    finally:
        GatewayClient.clear_instance()
    outputs = [cell.outputs for cell in notebook.cells]
    assert outputs[0][0].text == "start\n"
    kinds = [mime for o in outputs[1] if "data" in o for mime in o.data]
    assert "image/png" in kinds and "text/plain" in kinds
    assert outputs[2][0].data["text/plain"] == "42" and outputs[3][0].name == "stderr"
    nbformat.validate(notebook)
    deadline = time.monotonic() + 30
    while gateway.call("GET", "/api/kernels", user="nadia").json():
        assert time.monotonic() < deadline
        time.sleep(0.2)
