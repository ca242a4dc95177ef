"""Started by init as the relay's uid: descriptors 0-2 are the container's, 3 is init, 4 and 5 the zygote's commands and reports."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from relay.loop import Relay

os.umask(0o007)
sys.exit(Relay(3, 4, 5).run())
