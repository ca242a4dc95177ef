"""Documents that follow from the code agree with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_generated_documents_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / "generate_docs.py"), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
