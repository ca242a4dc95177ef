"""The route table."""

from __future__ import annotations

import logging
from typing import Any

from tornado.web import Application

from ..service.api import GatewayFacade
from . import (
    admin,
    asgi,
    channels,
    events,
    execution_events,
    executions,
    files,
    health,
    jupyter,
    metrics,
    notebook_sessions,
    openapi,
    operations,
    page,
    scopes,
    sessions,
)
from . import transcript as transcripts
from .access import access_log
from .base import NotFoundHandler
from .deps import Deps
from .gate import BodyLimit

ID = r"([A-Za-z0-9_.-]{1,128})"
V1 = "/api/v1"
S = rf"{V1}/sessions/{ID}"

log = logging.getLogger("sandglass.http")


def make_app(gateway: GatewayFacade, deps: Deps) -> Application:
    """The gateway's application: Jupyter, native API, page."""
    common = {"gateway": gateway, "deps": deps}
    table: list[tuple[str, Any]] = [
        ("/", page.IndexHandler),
        ("/login", page.LoginHandler),
        ("/logout", page.LogoutHandler),
        ("/healthz", health.HealthHandler),
        ("/readyz", health.ReadyHandler),
        ("/metrics", metrics.MetricsHandler),
        # Jupyter
        ("/api/?", jupyter.VersionHandler),
        ("/api/status", jupyter.StatusHandler),
        ("/api/kernelspecs", jupyter.KernelSpecsHandler),
        ("/api/kernelspecs/([^/]+)", jupyter.KernelSpecHandler),
        ("/kernelspecs/([^/]+)/(.+)", jupyter.KernelSpecResourceHandler),
        ("/api/kernels", jupyter.KernelsHandler),
        (rf"/api/kernels/{ID}", jupyter.KernelHandler),
        (rf"/api/kernels/{ID}/interrupt", jupyter.InterruptHandler),
        (rf"/api/kernels/{ID}/restart", jupyter.RestartHandler),
        (rf"/api/kernels/{ID}/channels", channels.ChannelsHandler),
        ("/api/sessions", notebook_sessions.NotebookSessionsHandler),
        (rf"/api/sessions/{ID}", notebook_sessions.NotebookSessionHandler),
        # native
        (f"{V1}/openapi.json", openapi.OpenApiHandler),
        (f"{V1}/me", sessions.MeHandler),
        (f"{V1}/profiles", sessions.ProfilesHandler),
        (f"{V1}/sessions", sessions.SessionsHandler),
        (S, sessions.SessionHandler),
        (f"{S}/keep-alive", sessions.KeepAliveHandler),
        (f"{S}/recycle", sessions.RecycleHandler),
        (f"{S}/interrupt", sessions.InterruptHandler),
        (f"{S}/restart", sessions.RestartHandler),
        (f"{S}/executions", executions.ExecutionsHandler),
        (rf"{S}/executions/{ID}", executions.ExecutionHandler),
        (rf"{S}/executions/{ID}/events", execution_events.ExecutionEventsHandler),
        (rf"{S}/executions/{ID}/output", execution_events.OutputHandler),
        (f"{S}/stdin", executions.StdinHandler),
        (f"{S}/events", events.EventsHandler),
        (f"{S}/transcript", transcripts.TranscriptHandler),
        (f"{S}/notebook", transcripts.NotebookHandler),
        (f"{S}/rebuild", transcripts.RebuildHandler),
        (f"{S}/notices", sessions.NoticesHandler),
        (f"{S}/files", files.FilesHandler),
        (f"{S}/files/(.+)", files.FileHandler),
        (f"{S}/declarations", sessions.DeclarationsHandler),
        (f"{S}/artifacts", files.ArtifactsHandler),
        (rf"{V1}/artifacts/{ID}", files.ArtifactHandler),
        (rf"{V1}/artifacts/{ID}/link", files.ArtifactLinkHandler),
        (rf"{V1}/artifacts/{ID}/download", files.ArtifactDownloadHandler),
        (f"{V1}/admin/sessions", admin.AdminSessionsHandler),
        (rf"{V1}/admin/sessions/{ID}", admin.AdminSessionHandler),
        (rf"{V1}/admin/sessions/{ID}/end", admin.AdminEndHandler),
        (rf"{V1}/admin/sessions/{ID}/extend", admin.AdminExtendHandler),
        (rf"{V1}/admin/sessions/{ID}/retry", admin.AdminRetryHandler),
        (rf"{V1}/admin/sessions/{ID}/release", admin.AdminReleaseHandler),
        (f"{V1}/admin/users/([^/]+)/disable", admin.AdminDisableHandler),
        (f"{V1}/admin/users/([^/]+)/enable", admin.AdminEnableHandler),
        (f"{V1}/admin/users/([^/]+)/end-sessions", admin.AdminEndSessionsHandler),
        (f"{V1}/admin/disabled-users", admin.AdminDisabledUsersHandler),
        (f"{V1}/admin/audit", admin.AdminAuditHandler),
        (f"{V1}/admin/executions", admin.AdminExecutionsHandler),
        (f"{V1}/tickets", admin.TicketsHandler),
        ("/mcp", asgi.McpHandler),
    ]
    routes: list[Any] = [(path, handler, common) for path, handler in table]
    routes.append(("/static/(.+)", page.StaticHandler, {**common, "part": "host"}))
    return _application(routes, common, scopes=scopes.by_handler(routes), queries=operations.queries(routes))


def make_frame_app(gateway: GatewayFacade, deps: Deps) -> Application:
    """The output frame's own origin: files, and nothing else."""
    return _application([("/(.*)", page.FrameHandler, {"gateway": gateway, "deps": deps, "part": "frame"})], None)


def body_limit(deps: Deps) -> BodyLimit:
    """How large a request's body may be: an upload, or JSON."""

    def limit(method: str, path: str) -> int:
        is_upload = method == "PUT" and path.startswith(f"{V1}/sessions/") and "/files/" in path
        return deps.limits.upload_bytes if is_upload else deps.limits.json_bytes

    return limit


def _application(routes: list[Any], common: dict[str, Any] | None, **settings: Any) -> Application:
    fallback: dict[str, Any] = settings
    if common is not None:
        fallback |= {"default_handler_class": NotFoundHandler, "default_handler_args": common}
    return Application(
        routes,
        log_function=access_log(lambda path: path in ("/healthz", "/readyz", "/metrics")),
        serve_traceback=False,
        compress_response=False,
        **fallback,
    )
