"""Requests and streams that are under way, so that those of a revoked token or a disabled user end at once."""

from __future__ import annotations

import logging
from typing import Protocol
from weakref import WeakSet

from ..auth import Revocation
from ..domain.model import Principal

log = logging.getLogger("sandglass.http")


class Guest(Protocol):
    @property
    def caller(self) -> Principal: ...
    def cut_off(self) -> None:
        """End what is under way; harmless when it is over."""
        ...


class Presence:
    """Holds nobody: a handler that is over leaves by itself."""

    def __init__(self) -> None:
        self._here: WeakSet[Guest] = WeakSet()

    def enter(self, guest: Guest) -> None:
        self._here.add(guest)

    def revoked(self, entry: Revocation) -> None:
        """For ``Revocations.listeners``."""
        for guest in list(self._here):
            if entry.concerns(guest.caller, None):
                try:
                    guest.cut_off()
                except Exception:
                    # one that cannot be ended must not keep the others
                    log.exception("a stream of a revoked caller did not end")
