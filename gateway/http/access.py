"""The access log: one structured line for each answered request, without query strings, bodies or credentials."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tornado.web import RequestHandler

log = logging.getLogger("sandglass.access")


def access_log(quiet: Callable[[str], bool] = lambda path: False) -> Callable[[RequestHandler], None]:
    """A ``log_function`` for a Tornado application. ``quiet`` paths (health checks) are logged at debug level."""

    def log_request(handler: RequestHandler) -> None:
        request = handler.request
        status = handler.get_status()
        level = logging.DEBUG if quiet(request.path) and status < 500 else logging.INFO
        principal = getattr(handler, "principal", None)
        log.log(
            level,
            "request",
            extra={
                "method": request.method,
                # The path only: query strings hold tickets, and file names in them belong to users.
                "path": request.path,
                "status": status,
                "ms": round(1000 * request.request_time(), 1),
                "remote": request.remote_ip,
                "user": principal.user if principal is not None else "",
            },
        )

    return log_request
