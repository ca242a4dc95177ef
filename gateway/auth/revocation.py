"""Tokens and users whose word no longer counts, in memory, in a form that records can keep.

An entry is forgotten when every token that it could concern has expired by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..domain.model import Principal
from ..ports import DisabledRow


@dataclass(frozen=True, slots=True)
class Revocation:
    """Either ``token_id``, or ``tenant`` and ``user``: then tokens issued up to ``at``. ``until``: when it is moot."""

    at: float
    until: float
    token_id: str = ""
    tenant: str = ""
    user: str = ""
    every: bool = False
    """The user is disabled: tokens issued later do not count either."""

    def concerns(self, principal: Principal, issued_at: float | None) -> bool:
        """A token that does not say when it was issued counts as old."""
        if self.token_id:
            return principal.token_id == self.token_id
        return principal.owns(self.tenant, self.user) and (self.every or issued_at is None or issued_at <= self.at)


class Revocations:
    """``listeners`` are called with each new entry, to close what that token or user has open and to record it."""

    def __init__(self, known: Iterable[Revocation] = ()) -> None:
        self.listeners: list[Callable[[Revocation], None]] = []
        self._tokens: dict[str, Revocation] = {}
        self._users: dict[tuple[str, str], Revocation] = {}
        self._disabled: dict[tuple[str, str], Revocation] = {}
        self._pages_over: dict[tuple[str, str], float] = {}
        for entry in known:
            self._keep(entry)

    def revoke_token(self, token_id: str, now: float, until: float) -> None:
        """``until``: when the token expires by itself."""
        self._add(Revocation(now, until, token_id=token_id), now)

    def revoke_user(self, tenant: str, user: str, now: float, until: float) -> None:
        """Everything issued up to now; ``until``: when the longest-lived token of today has expired."""
        self._add(Revocation(now, until, tenant=tenant, user=user), now)

    def user_changed(self, row: DisabledRow) -> None:
        """A user was disabled; or enabled again, and then only page sessions from before stay ended."""
        whom = (row.tenant, row.user)
        self._pages_over[whom] = row.at
        if row.enabled_at is not None:
            self._disabled.pop(whom, None)
            return
        entry = self._disabled[whom] = Revocation(row.at, math.inf, tenant=row.tenant, user=row.user, every=True)
        self._tell(entry)

    def is_disabled(self, principal: Principal) -> bool:
        return (principal.tenant, principal.user) in self._disabled

    def page_is_over(self, principal: Principal, issued_at: float) -> bool:
        """The page session is from before its user was disabled."""
        return issued_at <= self._pages_over.get((principal.tenant, principal.user), -math.inf)

    def is_revoked(self, principal: Principal, issued_at: float | None) -> bool:
        entries = (self._tokens.get(principal.token_id), self._users.get((principal.tenant, principal.user)))
        return any(entry is not None and entry.concerns(principal, issued_at) for entry in entries)

    def entries(self) -> list[Revocation]:
        """What to record."""
        return [*self._tokens.values(), *self._users.values()]

    def _add(self, entry: Revocation, now: float) -> None:
        for kept in self.entries():
            if kept.until <= now:
                self._tokens.pop(kept.token_id, None)
                self._users.pop((kept.tenant, kept.user), None)
        self._keep(entry)
        self._tell(entry)

    def _tell(self, entry: Revocation) -> None:
        for listener in self.listeners:
            listener(entry)

    def _keep(self, entry: Revocation) -> None:
        if entry.token_id:
            self._tokens[entry.token_id] = entry
        else:
            self._users[entry.tenant, entry.user] = entry
