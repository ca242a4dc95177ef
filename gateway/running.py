"""Which gateway serves on a state directory: ``run.json``, written once it is ready and gone after its stop."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def run_file(state: Path) -> dict[str, Any]:
    """What it says of a gateway that runs; empty when none does."""
    try:
        content = json.loads((state / "run.json").read_text())
        os.kill(int(content["pid"]), 0)
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return dict(content)
