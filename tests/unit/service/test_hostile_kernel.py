"""What user code sends in the kernel's place is bounded and typed like what the kernel sends itself."""

from __future__ import annotations

from pathlib import Path

from gateway.domain.files import MAX_DECLARATIONS
from gateway.service.effects import MOST_REFUSALS

from .harness import Client, execute_request, rig, until


async def test_patterns_kept_from_code_are_bounded_as_those_declared_over_http(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        client = Client()
        access.attach("ws:client", client, after=None, jupyter=True)
        msg_id, body = execute_request("\n".join(f"keep:x{n}/**" for n in range(5 * MAX_DECLARATIONS)) + "\nsleep:0.3", "client")
        access.from_client("ws:client", body)
        await until(lambda: any(m.parent_id == msg_id for m in client.messages("execute_reply")))
        await until(lambda: not r.gateway.live[access.session_id].effects._declaring.locked())
        assert len(await access.declarations()) == MAX_DECLARATIONS
        await r.run(access, "keep:x0/**")
        assert len(await access.declarations()) == MAX_DECLARATIONS, "one that is there already is no further one"
        told = [m for m in client.messages("stream") if "sandglass.keep" in m.content["text"]]
        assert 0 < len(told) <= MOST_REFUSALS
