"""Jupyter's ``/api/sessions``: a notebook path and its kernel, for clients with no Jupyter server of their own."""

from __future__ import annotations

from typing import Any

from ..errors import BadRequest, NotFound
from ..service.api import SessionFacade
from .body import load_lenient
from .jupyter import Jupyter
from .notebooks import Notebook

MAX_CHARS = 4096


class NotebookBase(Jupyter):
    async def kernels_by_id(self) -> dict[str, SessionFacade]:
        """The caller's kernels; entries of those that are gone are forgotten on the way."""
        sessions = {s.session_id: s for s in await self.kernels()}
        self.deps.notebooks.keep_only(self.caller, set(sessions))
        return sessions

    def model(self, notebook: Notebook, session: SessionFacade) -> dict[str, Any]:
        return {
            "id": notebook.notebook_id,
            "path": notebook.path,
            "name": notebook.name,
            "type": notebook.kind,
            "kernel": session.kernel_model(),
            "notebook": {"path": notebook.path, "name": notebook.name},
        }

    async def found(self, notebook_id: str) -> tuple[Notebook, SessionFacade]:
        sessions = await self.kernels_by_id()
        notebook = self.deps.notebooks.get(self.caller, notebook_id)
        if notebook is None:
            raise NotFound(f"There is no session {notebook_id}.")
        return notebook, sessions[notebook.kernel_id]

    async def wanted_kernel(self, body: dict[str, Any]) -> SessionFacade | None:
        """The kernel that a body names by id, or a new one that it names by kernelspec; None when it names neither."""
        kernel = body.get("kernel")
        if not isinstance(kernel, dict):
            return None
        if kernel.get("id"):
            return await self.kernel(_text(kernel, "id"))
        if kernel.get("name"):
            return await self.start_kernel(kernel["name"])
        return None


class NotebookSessionsHandler(NotebookBase):
    async def get(self) -> None:
        sessions = await self.kernels_by_id()
        self.answer([self.model(n, sessions[n.kernel_id]) for n in self.deps.notebooks.of(self.caller)])

    async def post(self) -> None:
        body = load_lenient(self.request.body)
        old = body.get("notebook")
        path = _text(body, "path") or (_text(old, "path") if isinstance(old, dict) else "")
        if not path:
            raise BadRequest("A session needs a 'path'.")
        async with self.deps.notebooks.turn(self.caller, path):  # two requests for one new path start one kernel
            sessions = await self.kernels_by_id()
            notebook = self.deps.notebooks.by_path(self.caller, path)
            if notebook is None:
                session = await self.wanted_kernel(body) or await self.start_kernel(None)
                notebook = self.deps.notebooks.add(
                    self.caller,
                    path=path,
                    name=_text(body, "name"),
                    kind=_text(body, "type") or "notebook",
                    kernel_id=session.session_id,
                )
            else:
                session = sessions[notebook.kernel_id]
        self.set_header("Location", f"/api/sessions/{notebook.notebook_id}")
        self.answer(self.model(notebook, session), 201)


class NotebookSessionHandler(NotebookBase):
    async def get(self, notebook_id: str) -> None:
        self.answer(self.model(*await self.found(notebook_id)))

    async def patch(self, notebook_id: str) -> None:
        notebook, session = await self.found(notebook_id)
        body = load_lenient(self.request.body)
        path, name, kind = (_text(body, key) for key in ("path", "name", "type"))
        wanted = await self.wanted_kernel(body)
        notebook.path = path or notebook.path
        notebook.name = name if "name" in body else notebook.name
        notebook.kind = kind or notebook.kind
        if wanted is not None and wanted.session_id != session.session_id:
            notebook.kernel_id = wanted.session_id
            # As Jupyter Server does: the kernel left behind is ended, unless another notebook uses it.
            if all(n.kernel_id != session.session_id for n in self.deps.notebooks.of(self.caller)):
                session.end(by=self.caller.user)
            session = wanted
        self.answer(self.model(notebook, session))

    async def delete(self, notebook_id: str) -> None:
        notebook, session = await self.found(notebook_id)
        self.deps.notebooks.remove(self.caller, notebook.notebook_id)
        session.end(by=self.caller.user)
        self.no_content()


def _text(body: dict[str, Any], key: str) -> str:
    """A string member; absent and null are empty. Raises BadRequest."""
    value = body.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > MAX_CHARS:
        raise BadRequest(f"{key!r} must be a string of at most {MAX_CHARS} characters.")
    return value
