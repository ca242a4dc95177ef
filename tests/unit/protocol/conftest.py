"""The relay's pure modules are tested here as they run in the sandbox: flat, with ``frames`` and ``wire`` beside them."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

from gateway.protocol import frames, wire

# a loaded machine makes single examples slow; what must be fast has a test of its own
settings.register_profile("sandglass", deadline=None)
settings.load_profile("sandglass")

sys.modules.setdefault("frames", frames)
sys.modules.setdefault("wire", wire)
_SANDBOX = str(Path(__file__).parents[3] / "kernel-image" / "sandbox")
if _SANDBOX not in sys.path:
    sys.path.append(_SANDBOX)
