"""A sandbox's life as one pure table: used once, and gone only when the engine says so.

What is not in the table raises ``InvalidTransition``: so a sandbox that was claimed can never be claimed again, and one that is
being removed can be given to nobody.
"""

from __future__ import annotations

from enum import StrEnum

from ..errors import InvalidTransition
from .model import SandboxState


class SandboxEvent(StrEnum):
    """What happens to a sandbox."""

    READY = "ready"
    """Its first kernel answers."""
    CLAIM = "claim"
    """It is given to a session."""
    TAKE_UP = "take_up"
    """The session that it was given to is attached to it again."""
    REMOVE = "remove"
    """It is to be removed; again where that was not confirmed."""
    CONFIRMED_GONE = "confirmed_gone"
    """The engine has no such container."""


_S, _E = SandboxState, SandboxEvent

TABLE: dict[tuple[SandboxState, SandboxEvent], SandboxState] = {
    (_S.CREATING, _E.READY): _S.WARM,
    (_S.CREATING, _E.REMOVE): _S.REMOVING,
    (_S.WARM, _E.CLAIM): _S.CLAIMED,
    (_S.WARM, _E.TAKE_UP): _S.CLAIMED,  # a kill came between the session's record and this one's
    (_S.WARM, _E.REMOVE): _S.REMOVING,
    (_S.CLAIMED, _E.TAKE_UP): _S.CLAIMED,
    (_S.CLAIMED, _E.REMOVE): _S.REMOVING,
    (_S.REMOVING, _E.REMOVE): _S.REMOVING,
    (_S.REMOVING, _E.CONFIRMED_GONE): _S.GONE,
    (_S.GONE, _E.CONFIRMED_GONE): _S.GONE,  # two removals at a time
    (_S.GONE, _E.REMOVE): _S.GONE,  # asked for again by a gateway that did not see it confirmed
}


def step(state: str, event: SandboxEvent) -> SandboxState:
    """The next state. Raises ``InvalidTransition``."""
    after = TABLE.get((SandboxState(state), event))
    if after is None:
        raise InvalidTransition(f"A sandbox that is {state} takes no {event}.")
    return after
