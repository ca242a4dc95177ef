"""The helpers beside the tests are found whatever import mode pytest runs in; as a package this folder would be ``http``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
