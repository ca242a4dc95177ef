"""Between rows of ``ports`` and columns: names, statements, values."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from ..domain.model import Artifact
from ..domain.transcript import Cell
from ..ports import AuditRow, DeclarationRow, DisabledRow, ExecutionRow, NoticeRow, RevocationRow, SandboxRow, SessionRow
from .records_db import Database, Row


def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


SESSION, SANDBOX, EXECUTION, NOTICE = _names(SessionRow), _names(SandboxRow), _names(ExecutionRow), _names(NoticeRow)
ARTIFACT, AUDIT, DECLARATION, DISABLED = _names(Artifact), _names(AuditRow), _names(DeclarationRow), _names(DisabledRow)
REVOCATION = _names(RevocationRow)
CELL = _names(Cell)
_JSON_MEMBERS = frozenset(("data", "body", "detail", "code", "outputs"))
_FLAGS = frozenset(("keep", "delivered"))


def select(table: str, names: Iterable[str]) -> str:
    return f"SELECT {', '.join(names)} FROM {table} "  # noqa: S608 - names of our own, never a caller's text


def upsert(table: str, names: tuple[str, ...], key: str, guard: str = "") -> str:
    marks = ", ".join("?" * len(names))
    updates = ", ".join(f"{name} = excluded.{name}" for name in names if name not in key.split(", "))
    return (
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks}) "  # noqa: S608 - as above
        f"ON CONFLICT ({key}) DO UPDATE SET {updates} {guard}"
    )


encode = json.JSONEncoder(separators=(",", ":")).encode


def values(row: object, names: tuple[str, ...], **other: object) -> tuple[object, ...]:
    """The row's members as columns; ``other`` replaces some."""
    found = (other[name] if name in other else getattr(row, name) for name in names)
    return tuple(encode(value) if name in _JSON_MEMBERS else value for name, value in zip(names, found, strict=True))


def members(row: Row, names: tuple[str, ...]) -> dict[str, Any]:
    """The inverse."""
    return {
        name: json.loads(value) if name in _JSON_MEMBERS else bool(value) if name in _FLAGS else value for name, value in zip(names, row, strict=True)
    }


def sandbox(row: Row) -> SandboxRow:
    found = members(row, SANDBOX)
    return SandboxRow(**found | {"session_id": found["session_id"] or ""})


def where(**wanted: str | None) -> tuple[str, tuple[str, ...]]:
    """A WHERE clause for the members that are not None."""
    given = {name: value for name, value in wanted.items() if value is not None}
    return "WHERE " + (" AND ".join(f"{name} = ?" for name in given) or "true"), tuple(given.values())


def write_audit(db: Database, row: AuditRow) -> None:
    db.insert(f"INSERT INTO audit ({', '.join(AUDIT)}) VALUES (?, ?, ?, ?, ?, ?)", values(row, AUDIT))  # noqa: S608 - our names
