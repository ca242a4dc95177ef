"""The access log: one structured line for each answered request, without query strings, bodies or credentials."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

from tornado.web import RequestHandler

log = logging.getLogger("sandglass.access")
_FILE = re.compile(r"(/files/).+", re.DOTALL)


def shown(path: str) -> str:
    """A request's path as logs may hold it: the name of a file is its user's own word."""
    return _FILE.sub(r"\1...", path)


def access_log(quiet: Callable[[str], bool] = lambda path: False) -> Callable[[RequestHandler], None]:
    """A ``log_function`` for a Tornado application. ``quiet`` paths (health checks) are logged at debug level."""

    def log_request(handler: RequestHandler) -> None:
        request = handler.request
        status = handler.get_status()
        level = logging.DEBUG if quiet(request.path) and status < 500 else logging.INFO
        principal = getattr(handler, "principal", None)
        problem = getattr(handler, "refusal", None)
        line = {
            "method": request.method,
            "path": shown(request.path),  # without the query, which may hold a ticket
            "status": status,
            "ms": round(1000 * request.request_time(), 1),
            "remote": request.remote_ip,
            "user": principal.user if principal is not None else "",
        }
        if problem is not None:
            line["code"] = problem["code"]  # not its sentence, which may repeat what the caller wrote
        log.log(level, "request", extra=line)

    return log_request
