"""``python -m gateway`` is ``sandglass``."""

import sys

from .cli import main

sys.exit(main())
