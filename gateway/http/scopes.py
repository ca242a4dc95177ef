"""Which scopes each route asks of a token: the one table. An application with a route or method that is not in it is not made."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tornado.web import RequestHandler

from ..domain.model import Principal
from ..domain.scopes import Scope
from ..errors import Forbidden

Access = tuple[Scope, ...] | None
Methods = Mapping[str, Access]

PUBLIC: Access = None
"""No credential is asked for here, or the handler has a rule of its own (``/metrics``, ``/logout``)."""
ANYONE: Access = ()
"""Whoever has a valid credential, however narrow."""
WRITE, EXECUTE, RESULTS = (Scope.SESSIONS_WRITE,), (Scope.EXECUTE,), (Scope.RESULTS_READ,)
FILES_READ, FILES_WRITE, ADMIN = (Scope.FILES_READ,), (Scope.FILES_WRITE,), (Scope.ADMIN,)

V1 = "/api/v1"
S = V1 + "/sessions/{session_id}"
A = V1 + "/admin"

TABLE: dict[str, Methods] = {
    "/": {"GET": PUBLIC},
    "/login": {"GET": PUBLIC},
    "/logout": {"POST": PUBLIC},
    "/static/{file}": {"GET": PUBLIC, "HEAD": PUBLIC},
    "/healthz": {"GET": PUBLIC},
    "/readyz": {"GET": PUBLIC},
    "/metrics": {"GET": PUBLIC},
    "/mcp": {"GET": ANYONE, "POST": ANYONE, "DELETE": ANYONE},  # its tools ask for scopes themselves
    # Jupyter
    "/api": {"GET": ANYONE},
    "/api/status": {"GET": ANYONE},
    "/api/kernelspecs": {"GET": ANYONE},
    "/api/kernelspecs/{name}": {"GET": ANYONE},
    "/kernelspecs/{name}/{file}": {"GET": ANYONE},
    "/api/kernels": {"GET": ANYONE, "POST": WRITE},
    "/api/kernels/{kernel_id}": {"GET": ANYONE, "DELETE": WRITE},
    "/api/kernels/{kernel_id}/interrupt": {"POST": EXECUTE},
    "/api/kernels/{kernel_id}/restart": {"POST": EXECUTE},
    "/api/kernels/{kernel_id}/channels": {"GET": (Scope.EXECUTE, Scope.RESULTS_READ)},
    "/api/sessions": {"GET": ANYONE, "POST": WRITE},
    "/api/sessions/{notebook_id}": {"GET": ANYONE, "PATCH": WRITE, "DELETE": WRITE},
    # native
    f"{V1}/openapi.json": {"GET": PUBLIC},
    f"{V1}/me": {"GET": ANYONE},
    f"{V1}/profiles": {"GET": ANYONE},
    f"{V1}/tickets": {"POST": ANYONE},
    f"{V1}/sessions": {"GET": ANYONE, "POST": WRITE},
    S: {"GET": ANYONE, "DELETE": WRITE},
    f"{S}/keep-alive": {"POST": WRITE},
    f"{S}/recycle": {"POST": WRITE},
    f"{S}/interrupt": {"POST": EXECUTE},
    f"{S}/restart": {"POST": EXECUTE},
    f"{S}/executions": {"GET": RESULTS, "POST": EXECUTE},
    f"{S}/executions/{{execution_id}}": {"GET": RESULTS, "DELETE": EXECUTE},
    f"{S}/executions/{{execution_id}}/events": {"GET": RESULTS},
    f"{S}/executions/{{execution_id}}/output": {"GET": RESULTS},
    f"{S}/stdin": {"POST": EXECUTE},
    f"{S}/events": {"GET": RESULTS},
    f"{S}/transcript": {"GET": RESULTS, "DELETE": WRITE},
    f"{S}/notebook": {"GET": RESULTS},
    f"{S}/rebuild": {"GET": RESULTS, "POST": EXECUTE, "DELETE": EXECUTE},
    f"{S}/notices": {"GET": ANYONE},
    f"{S}/files": {"GET": FILES_READ},
    f"{S}/files/{{path}}": {"GET": FILES_READ, "PUT": FILES_WRITE, "DELETE": FILES_WRITE},
    f"{S}/declarations": {"GET": FILES_READ, "POST": FILES_WRITE, "DELETE": FILES_WRITE},
    f"{S}/artifacts": {"GET": FILES_READ},
    f"{V1}/artifacts/{{artifact_id}}": {"GET": FILES_READ, "DELETE": FILES_WRITE},
    f"{V1}/artifacts/{{artifact_id}}/link": {"POST": FILES_READ},
    f"{V1}/artifacts/{{artifact_id}}/download": {"GET": FILES_READ},
    f"{A}/sessions": {"GET": ADMIN},
    f"{A}/sessions/{{session_id}}": {"GET": ADMIN},
    f"{A}/sessions/{{session_id}}/end": {"POST": ADMIN},
    f"{A}/sessions/{{session_id}}/extend": {"POST": ADMIN},
    f"{A}/sessions/{{session_id}}/retry": {"POST": ADMIN},
    f"{A}/sessions/{{session_id}}/release": {"POST": ADMIN},
    f"{A}/users/{{user}}/disable": {"POST": ADMIN},
    f"{A}/users/{{user}}/enable": {"POST": ADMIN},
    f"{A}/users/{{user}}/end-sessions": {"POST": ADMIN},
    f"{A}/disabled-users": {"GET": ADMIN},
    f"{A}/audit": {"GET": ADMIN},
    f"{A}/executions": {"GET": ADMIN},
}


def require(principal: Principal, needed: Iterable[str]) -> None:
    """Raises Forbidden, which names the first scope that is missing, and all that the request needs."""
    wanted = [str(scope) for scope in needed]
    for scope in wanted:
        if not principal.permits(scope):
            raise Forbidden(f"The token lacks the scope {scope}.", scope=scope, needs=wanted)


def shape(path: str) -> str:
    """A route's pattern, or a path of the table, with nothing said of its parameters."""
    return re.sub(r"\{\w+\}|\([^()]*\)", "{}", path).removesuffix("/?")


def methods_of(handler: type[RequestHandler]) -> set[str]:
    stub = RequestHandler._unimplemented_method
    return {name for name in handler.SUPPORTED_METHODS if getattr(handler, name.lower(), stub) is not stub}


def by_handler(routes: Iterable[tuple[str, type[RequestHandler], Any]]) -> dict[type[RequestHandler], Methods]:
    """What each handler's methods ask for. Raises ValueError: a route is missing here, or stands here and is not served."""
    table = {shape(path): methods for path, methods in TABLE.items()}
    found: dict[type[RequestHandler], Methods] = {}
    for path, handler, _ in routes:
        methods = table.pop(shape(path), {})
        if set(methods) != methods_of(handler):
            raise ValueError(f"gateway/http/scopes.py: {path} answers {sorted(methods_of(handler))}, the table has {sorted(methods)}")
        if handler in found:
            raise ValueError(f"gateway/http/scopes.py: {handler.__name__} serves two routes; each needs a class of its own")
        found[handler] = methods
    if table:
        raise ValueError(f"gateway/http/scopes.py: not served: {', '.join(table)}")
    return found
