"""What the gateway may ask of the relay: each CALL gets exactly one RESULT."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from .life import Life

MAX_GRACE_S = 600.0


def user_processes(uid: int) -> int:
    """Processes of that uid, without zombies."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/status", "rb") as file:
                    status = file.read(4096)
            except OSError:
                continue  # it has ended meanwhile
            count += f"\nUid:\t{uid}\t".encode() in status and b"\nState:\tZ" not in status
    return count


def resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _number(call: dict[str, Any], name: str, default: int, low: int, high: int) -> int:
    value = call.get(name, default)
    return min(max(value, low), high) if type(value) is int else default


def handle(
    call: dict[str, Any], now: float, life: Life, user_uid: int, kept: Callable[[], int], answer: Callable[[dict[str, Any]], None]
) -> None:
    """``answer`` takes the RESULT, at once or later."""
    call_id = call.get("id")

    def done(result: dict[str, Any]) -> None:
        answer({"id": call_id, **result})

    match call.get("op"):
        case "start_kernel":
            life.start(now, done, warm=call.get("warm") is True)
        case "restart_kernel":
            life.restart(now, done, after=_number(call, "after", 0, 0, 2**63))
        case "interrupt":
            life.interrupt(now, done, min(_number(call, "grace_ms", 500, 0, 2**31) / 1000, MAX_GRACE_S))
        case "kill_user":
            life.kill(now, done)
        case "stats":
            done({"ok": True, "user_processes": user_processes(user_uid), "relay_rss": resident_bytes(), "kept_bytes": kept()})
        case _:
            done({"ok": False, "error": "unknown_op"})
