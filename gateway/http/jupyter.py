"""Jupyter's REST API: exact status codes, lenient bodies. A kernel id is a session's, a kernelspec is a profile."""

from __future__ import annotations

from typing import Any

from .. import __version__
from ..clock import iso
from ..errors import NotFound, SessionEnded
from ..service.api import SessionFacade
from .base import Authenticated
from .body import load_lenient

DEFAULT_ALIAS = "python3"
"""Nearly every notebook names this kernelspec; it means the default profile."""
_ALL_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


class Jupyter(Authenticated):
    """Clients put the token where they like, and send bodies with keys of their own."""

    query_token_methods = _ALL_METHODS

    async def kernel(self, kernel_id: str) -> SessionFacade:
        """The caller's session behind a kernel id; a 404 is how Jupyter clients learn that a kernel is gone."""
        try:
            session = await self.session_of(kernel_id)
        except SessionEnded:
            session = None
        if session is None or session.ending:
            raise NotFound("There is no such session.")  # word for word what a foreign id gets
        return session

    async def kernels(self) -> list[SessionFacade]:
        """The caller's kernels, newest first."""
        return [session for session in await self.gateway.live_sessions(self.caller) if not session.ending]

    async def start_kernel(self, name: Any) -> SessionFacade:
        """A new session with the profile that ``name`` means. Raises NotFound for an unknown one."""
        profile = name if isinstance(name, str) and name not in ("", DEFAULT_ALIAS) else None
        return await self.gateway.create_session(self.caller, profile=profile, source="jupyter")


class VersionHandler(Jupyter):
    def get(self) -> None:
        self.answer({"version": __version__})


class StatusHandler(Jupyter):
    async def get(self) -> None:
        models = [session.kernel_model() for session in await self.kernels()]
        started = iso(self.gateway.started_at)
        self.answer(
            {
                "started": started,
                "last_activity": max([started, *(m["last_activity"] for m in models)]),
                "connections": sum(int(m["connections"]) for m in models),
                "kernels": len(models),
            }
        )


class KernelSpecsHandler(Jupyter):
    def get(self) -> None:
        self.answer(kernelspecs(self.gateway.profiles()))


class KernelSpecHandler(Jupyter):
    def get(self, name: str) -> None:
        spec = kernelspecs(self.gateway.profiles())["kernelspecs"].get(name)
        if spec is None:
            raise NotFound(f"There is no kernelspec {name:.80}.")
        self.answer(spec)


class KernelSpecResourceHandler(Jupyter):
    """No logos: clients draw their own when this is 404."""

    def get(self, name: str, file: str) -> None:
        raise NotFound("This kernelspec has no such file.")


class KernelsHandler(Jupyter):
    async def get(self) -> None:
        self.answer([session.kernel_model() for session in await self.kernels()])

    async def post(self) -> None:
        session = await self.start_kernel(load_lenient(self.request.body).get("name"))
        model = session.kernel_model()
        self.set_header("Location", f"/api/kernels/{model['id']}")
        self.answer(model, 201)


class KernelHandler(Jupyter):
    async def get(self, kernel_id: str) -> None:
        self.answer((await self.kernel(kernel_id)).kernel_model())

    async def delete(self, kernel_id: str) -> None:
        session = await self.kernel(kernel_id)
        session.end(by=self.caller.user)
        self.no_content()


class InterruptHandler(Jupyter):
    async def post(self, kernel_id: str) -> None:
        await (await self.kernel(kernel_id)).interrupt()
        self.no_content()


class RestartHandler(Jupyter):
    async def post(self, kernel_id: str) -> None:
        session = await self.kernel(kernel_id)
        await session.restart()
        self.answer(session.kernel_model())


def kernelspecs(profiles: dict[str, Any]) -> dict[str, Any]:
    """Jupyter's listing from ``/api/v1/profiles``: the available ones, and ``python3`` for the default.

    ``default`` is always a key of ``kernelspecs``, since clients index with it; with nothing available the default
    profile stays listed, and starting it tells what is missing.
    """
    default = str(profiles["default"])
    listed = [p for p in profiles["profiles"] if p["available"] or p["name"] == default]
    specs = {p["name"]: _spec(p["name"], p.get("display_name") or p["name"]) for p in listed}
    if default in specs and DEFAULT_ALIAS not in specs:
        specs[DEFAULT_ALIAS] = _spec(DEFAULT_ALIAS, "Python 3 (Sandglass)")
    return {"default": default, "kernelspecs": specs}


def _spec(name: str, display_name: str) -> dict[str, Any]:
    return {
        "name": name,
        "spec": {
            "argv": ["sandglass", name],
            "display_name": display_name,
            "language": "python",
            "metadata": {"debugger": False},
            "env": {},
            "interrupt_mode": "message",
        },
        "resources": {},
    }
