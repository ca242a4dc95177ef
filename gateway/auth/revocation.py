"""Tokens and users whose word no longer counts, in memory, in a form that records can keep.

An entry is forgotten when every token that it could concern has expired by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..domain.model import Principal


@dataclass(frozen=True, slots=True)
class Revocation:
    """Either ``token_id``, or ``tenant`` and ``user``: then tokens issued up to ``at``. ``until``: when it is moot."""

    at: float
    until: float
    token_id: str = ""
    tenant: str = ""
    user: str = ""

    def concerns(self, principal: Principal, issued_at: float | None) -> bool:
        """A token that does not say when it was issued counts as old."""
        if self.token_id:
            return principal.token_id == self.token_id
        return principal.owns(self.tenant, self.user) and (issued_at is None or issued_at <= self.at)


class Revocations:
    """``listeners`` are called with each new entry, to close what that token or user has open and to record it."""

    def __init__(self, known: Iterable[Revocation] = ()) -> None:
        self.listeners: list[Callable[[Revocation], None]] = []
        self._tokens: dict[str, Revocation] = {}
        self._users: dict[tuple[str, str], Revocation] = {}
        for entry in known:
            self._keep(entry)

    def revoke_token(self, token_id: str, now: float, until: float) -> None:
        """``until``: when the token expires by itself."""
        self._add(Revocation(now, until, token_id=token_id), now)

    def revoke_user(self, tenant: str, user: str, now: float, until: float) -> None:
        """Everything issued up to now; ``until``: when the longest-lived token of today has expired."""
        self._add(Revocation(now, until, tenant=tenant, user=user), now)

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
        for listener in self.listeners:
            listener(entry)

    def _keep(self, entry: Revocation) -> None:
        if entry.token_id:
            self._tokens[entry.token_id] = entry
        else:
            self._users[entry.tenant, entry.user] = entry
