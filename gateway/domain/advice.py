"""What to do after an execution that went wrong: whether the same may be run again, and how to go on. Pure.

The exit reason is decided by evidence (``execution.classify``); only the name of a missing module is read from the interpreter's
own sentence, and is no part of any record: it comes from code.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from .model import ExitReason as R


class Retry(StrEnum):
    """Whether the same code may be run again."""

    NO = "no"
    """It would end in the same way until somebody else changes something."""
    CHANGED = "changed"
    """Not as it is."""
    REBUILT = "rebuilt"
    """Once the variables that it needs are there again."""
    LATER = "later"
    """As it is, after a while."""
    SAME = "same"
    """As it is, whenever it is wanted."""


FETCH_INSTEAD = "upload"
"""The tool for data from elsewhere: there is no fetch tool yet (P27), so the caller gets it outside and uploads it."""
_LATER_S = {R.CAPACITY_EXHAUSTED: 15.0, R.PLATFORM_FAULT: 5.0}
_MISSING = re.compile(r"No module named '([^\W\d]\w{0,99}(?:\.\w{1,100}){0,20})'")
IMPORTED_AS = {"scikit-learn": "sklearn", "pillow": "PIL", "python-dateutil": "dateutil", "jupyter-client": "jupyter_client", "pyzmq": "zmq"}
"""Packages whose modules have another name."""

ADVICE: dict[R, tuple[Retry, str]] = {
    R.CODE_ERROR: (Retry.CHANGED, "Read the error, change the code and run it again; variables set before the error are there."),
    R.SYNTAX_ERROR: (Retry.CHANGED, "Nothing of it was run. Correct the place that the error names."),
    R.DEPENDENCY_MISSING: (Retry.CHANGED, "Nothing can be installed while it runs. Use what the image offers, or write the needed part yourself."),
    R.NETWORK_DENIED: (
        Retry.CHANGED,
        "That is so for every sandbox. Get the data outside and upload it (PUT /api/v1/sessions/{id}/files/in/NAME), then read /workspace/in/NAME.",
    ),
    R.INTERRUPTED: (Retry.SAME, "Somebody stopped it; the variables are there. Ask whether it is still wanted."),
    R.TIMEOUT: (Retry.CHANGED, "Split the work into shorter steps that leave results in variables or files, or ask for a longer timeout_s."),
    R.CPU_LIMIT: (Retry.CHANGED, "Split the work into steps, or use a cheaper way; waiting longer does not help."),
    R.MEMORY_LIMIT: (Retry.CHANGED, "Load less at a time: read columns or chunks, use smaller types, delete what is not needed. Files count too."),
    R.PROCESS_LIMIT: (Retry.CHANGED, "Start fewer processes and threads, and end those that are left over; a restart of the kernel ends them all."),
    R.DISK_LIMIT: (Retry.CHANGED, "Delete files from the workspace or /tmp, or write less."),
    R.OUTPUT_LIMIT: (Retry.CHANGED, "It ran; only output was dropped. Print a part or a summary, or write it to a file in out/."),
    R.POLICY_DENIED: (Retry.NO, "Another try ends in the same way. An administrator decides about this."),
    R.APPROVAL_REQUIRED: (Retry.LATER, "Ask for the approval, and run it once a person has given it."),
    R.ARTIFACT_REJECTED: (Retry.CHANGED, "Make it so that the named rule is kept: another content, or the name that fits it."),
    R.KERNEL_DIED: (Retry.REBUILT, "The kernel is a new one. Rebuild the variables first; should it die again, the code ends the kernel: change it."),
    R.SANDBOX_ENDED: (Retry.REBUILT, "Declared files come back with the next execution. Rebuild the variables, then run it again."),
    R.GENERATION_MISMATCH: (Retry.REBUILT, "Nothing was run. Rebuild the variables, and expect the generation that there is now."),
    R.CAPACITY_EXHAUSTED: (Retry.LATER, "Nothing was run. Try again after a while, or end a session that is not needed."),
    R.IMAGE_UNAVAILABLE: (Retry.NO, "Nothing was run. The operator must put the kernel image back."),
    R.PLATFORM_FAULT: (Retry.LATER, "Try again after a while. Whether it had begun is not sure: look at the session's generation and files first."),
}
"""Of everything but ``ok``."""


def advise(reason: R | None, error_value: str = "", packages: Sequence[str] = ()) -> dict[str, Any] | None:
    """``{"retry", "text"}``, and where they apply ``retry_after_s``, ``tool``, ``missing``, ``offered``, ``similar``; None after ``ok``.

    ``error_value``: what the exception says. ``packages``: what the image offers; empty: not known.
    """
    if reason is None or reason not in ADVICE:
        return None
    retry, text = ADVICE[reason]
    found: dict[str, Any] = {"retry": retry, "text": text}
    if reason in _LATER_S:
        found["retry_after_s"] = _LATER_S[reason]
    if reason is R.NETWORK_DENIED:
        found["tool"] = FETCH_INSTEAD
    if reason is R.DEPENDENCY_MISSING:
        found |= _missing(error_value, packages)
        found["text"] = _about(found) + text
    return found


def _missing(error_value: str, packages: Sequence[str]) -> dict[str, Any]:
    match = _MISSING.search(error_value[:2000])
    missing = match[1] if match else ""
    modules = {IMPORTED_AS.get(name, name.replace("-", "_")): name for name in packages}
    similar = difflib.get_close_matches(missing.partition(".")[0], [*modules, *packages], 3, 0.75) if missing else []
    return {"missing": missing or None, "offered": list(packages), "similar": sorted({modules.get(name, name) for name in similar})}


def _about(found: dict[str, Any]) -> str:
    """``tensorflow is not in the image, which offers ...``."""
    if not found["missing"]:
        return ""
    offered = f"; it offers {', '.join(found['offered'])}" if found["offered"] else ""
    return f"{found['missing']} is not in the image{offered}. "
