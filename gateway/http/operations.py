"""The native API, operation by operation: what each takes and answers. The OpenAPI document is made of this table and of ``scopes.TABLE``.

Handlers parse with the models that stand here: query arguments that a model does not have are refused before a handler runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from tornado.web import RequestHandler

from .models import answers, bodies, executions
from .models import queries as q
from .models.base import Body, Query
from .scopes import V1, A, S, methods_of, shape

Content = type[BaseModel] | str | None
"""A model (JSON), a media type of bytes, or None for no content."""
BYTES, EVENTS, NOTEBOOK = "application/octet-stream", "text/event-stream", "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Operation:
    """``answer``: of status ``status``; ``also``: further statuses with the same answer. ``refuses``: beyond what every operation may."""

    name: str
    does: str
    answer: Content
    status: int = 200
    also: tuple[int, ...] = ()
    body: type[Body] | str | None = None
    query: type[Query] = Query
    refuses: tuple[int, ...] = ()
    headers: Mapping[str, str] | None = None


Methods = Mapping[str, Operation]
Op = Operation
NOTHING = bodies.Nothing
OVER, STATE, LARGE = (410,), (409, 410), (413,)
LAST_EVENT = {"Last-Event-ID": "Resume behind this event."}

TABLE: dict[str, Methods] = {
    f"{V1}/openapi.json": {"GET": Op("openapi", "This document.", "application/json")},
    f"{V1}/me": {"GET": Op("me", "Who the credential stands for.", answers.Me)},
    f"{V1}/profiles": {"GET": Op("profiles", "Which kinds of sandbox there are.", answers.Profiles)},
    f"{V1}/tickets": {"POST": Op("make_ticket", "Make a login link for the caller.", answers.Ticket, 201, body=bodies.NewTicket, refuses=(429,))},
    f"{V1}/sessions": {
        "GET": Op("sessions", "The caller's sessions, newest first.", answers.Sessions, query=q.Sessions),
        "POST": Op("make_session", "Make a session.", answers.Session, 201, body=bodies.NewSession, refuses=(404, 429)),
    },
    S: {
        "GET": Op("session", "One session, also an ended one.", answers.Session),
        "DELETE": Op("end_session", "End it; declared files stay.", answers.Session, 202, refuses=STATE),
    },
    f"{S}/keep-alive": {"POST": Op("keep_alive", "Reset the idle timer.", answers.Session, body=NOTHING, refuses=OVER)},
    f"{S}/recycle": {"POST": Op("recycle", "End the sandbox, keep the session.", answers.Session, 202, body=NOTHING, refuses=STATE)},
    f"{S}/interrupt": {"POST": Op("interrupt", "Interrupt what runs.", None, 204, body=NOTHING, refuses=STATE)},
    f"{S}/restart": {"POST": Op("restart", "Restart the kernel: a new generation.", answers.Session, body=NOTHING, refuses=STATE)},
    f"{S}/executions": {
        "GET": Op("executions", "The last 100, oldest first, without outputs.", answers.Executions, refuses=OVER),
        "POST": Op(
            "execute", "Queue code; 200 when it finished within `wait`.", answers.Execution, 202, (200,), executions.ExecuteBody, q.Wait,
            (404, 409, 410, 422, 429), {"Idempotency-Key": "The same key with the same body is the same execution."},
        ),
    },
    f"{S}/executions/{{execution_id}}": {
        "GET": Op("execution", "One execution with its outputs.", answers.Execution, query=q.Wait, refuses=OVER),
        "DELETE": Op("cancel", "Cancel it: what waits never runs, what runs is interrupted.", answers.Execution, refuses=OVER),
    },
    f"{S}/executions/{{execution_id}}/events": {
        "GET": Op("execution_events", "One execution's events, to its end.", EVENTS, query=q.Events, refuses=(410, 429), headers=LAST_EVENT),
    },
    f"{S}/executions/{{execution_id}}/output": {
        "GET": Op("execution_output", "Its whole output.", BYTES, query=executions.OutputQuery, refuses=(409, 410)),
    },
    f"{S}/stdin": {"POST": Op("answer_stdin", "Answer what `input()` asks.", None, 204, body=executions.StdinBody, refuses=STATE)},
    f"{S}/events": {
        "GET": Op("events", "The session's events as they come.", EVENTS, query=q.Events, refuses=(410, 429), headers=LAST_EVENT),
    },
    f"{S}/transcript": {
        "GET": Op("transcript", "What the session ran, page by page.", answers.Transcript, query=q.Transcript),
        "DELETE": Op("delete_transcript", "Delete it.", None, 204),
    },
    f"{S}/notebook": {"GET": Op("notebook", "The transcript as an `.ipynb` file.", NOTEBOOK, refuses=(409,))},
    f"{S}/rebuild": {
        "GET": Op("rebuild", "The latest rebuild.", answers.Rebuild, refuses=OVER),
        "POST": Op("start_rebuild", "Run cells of the transcript again.", answers.Rebuild, 202, body=bodies.NewRebuild, refuses=(409, 410, 429)),
        "DELETE": Op("stop_rebuild", "Stop it.", answers.Rebuild, refuses=STATE),
    },
    f"{S}/notices": {"GET": Op("notices", "What the user was told of lifetimes, losses and restores.", answers.Notices)},
    f"{S}/files": {"GET": Op("files", "The files of the sandbox, or those that are stored.", answers.Files)},
    f"{S}/files/{{path}}": {
        "GET": Op("download", "A file's bytes.", BYTES, refuses=(409, 410, 422)),
        "PUT": Op("upload", "Store a file. It needs a Content-Length.", answers.Uploaded, 201, (), BYTES, q.Upload, (409, 410, 413, 422, 429)),
        "DELETE": Op("delete_file", "Delete it; it is not restored any more.", None, 204, refuses=OVER),
    },
    f"{S}/declarations": {
        "GET": Op("declarations", "Which files are kept.", answers.Declarations),
        "POST": Op("declare", "Keep (or do not keep) files.", answers.Declaration, 201, body=bodies.NewDeclaration, refuses=(410, 429)),
        "DELETE": Op("undeclare", "Take back a declaration.", None, 204, query=q.OnePattern, refuses=OVER),
    },
    f"{S}/artifacts": {"GET": Op("artifacts", "The files that are stored.", answers.Artifacts)},
    f"{V1}/artifacts/{{artifact_id}}": {
        "GET": Op("artifact", "The stored bytes.", BYTES, refuses=(422,)),
        "DELETE": Op("delete_artifact", "Delete it, for everybody.", None, 204),
    },
    f"{V1}/artifacts/{{artifact_id}}/link": {"POST": Op("make_link", "A link, for minutes.", answers.Link, 201, body=NOTHING, refuses=(422,))},
    f"{V1}/artifacts/{{artifact_id}}/download": {"GET": Op("follow_link", "The same, by link.", BYTES, query=q.Link, refuses=(422,))},
    f"{A}/sessions": {"GET": Op("admin_sessions", "Sessions of the tenant, or of all.", answers.AdminSessions, query=q.AdminSessions)},
    f"{A}/sessions/{{session_id}}": {"GET": Op("admin_session", "One, with what led to its state.", answers.AdminSessionDetail)},
    f"{A}/sessions/{{session_id}}/end": {
        "POST": Op("admin_end", "End it; declared files are stored first.", answers.Session, 202, body=bodies.WithReason, refuses=STATE)
    },
    f"{A}/sessions/{{session_id}}/extend": {
        "POST": Op("admin_extend", "Move the maximum of its present sandbox.", answers.Session, body=bodies.Extension, refuses=STATE)
    },
    f"{A}/sessions/{{session_id}}/retry": {
        "POST": Op("admin_retry", "Store what a quarantined sandbox holds now.", answers.Session, 202, body=bodies.WithReason, refuses=STATE)
    },
    f"{A}/sessions/{{session_id}}/release": {
        "POST": Op("admin_release", "Give up what could not be stored.", answers.Session, 202, body=bodies.Release, refuses=STATE)
    },
    f"{A}/users/{{user}}/disable": {
        "POST": Op("disable_user", "Nobody of that name gets in any more.", answers.DisabledUser, body=bodies.Disabling, refuses=(409,))
    },
    f"{A}/users/{{user}}/enable": {"POST": Op("enable_user", "Take that back.", answers.EnabledUser, body=bodies.OfTenant, refuses=(409,))},
    f"{A}/users/{{user}}/end-sessions": {
        "POST": Op("end_sessions", "End all sessions of a user.", answers.EndedSessions, 202, body=bodies.EndingSessions, refuses=(409,))
    },
    f"{A}/disabled-users": {"GET": Op("disabled_users", "Whom the admin may enable.", answers.DisabledUsers)},
    f"{A}/audit": {"GET": Op("audit", "Who did what, newest first.", answers.Audit, query=q.Audit)},
    f"{A}/executions": {"GET": Op("admin_executions", "Traces of executions, newest first.", answers.Traces, query=q.AdminExecutions)},
}


def queries(routes: Iterable[tuple[str, type[RequestHandler], Any]]) -> dict[tuple[type[RequestHandler], str], type[Query]]:
    """Which query arguments each handler's methods take. Raises ValueError for a native route that is not in the table."""
    table = {shape(path): methods for path, methods in TABLE.items()}
    found: dict[tuple[type[RequestHandler], str], type[Query]] = {}
    for path, handler, _ in routes:
        if path.startswith(V1):
            methods = table.get(shape(path), {})
            if set(methods) != methods_of(handler):
                raise ValueError(f"gateway/http/operations.py: {path} answers {sorted(methods_of(handler))}, the table has {sorted(methods)}")
            found |= {(handler, method): operation.query for method, operation in methods.items()}
    return found
