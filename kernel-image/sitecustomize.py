"""Runs at the start of every Python in the sandbox: gives matplotlib a cache directory that already holds its font list.

The root file system is read-only and /tmp starts empty, so without this the first plot of every new process would spend a
second on looking at fonts. Each uid has a directory of its own, since matplotlib refuses one that it cannot write to; root's
is out of reach for user code, because root must not read what user code wrote.
"""

import os

_BAKED = "/opt/kernel/share/matplotlib"
_ROOTS_OWN = "/run/sandglass-etc/matplotlib"


def _seed_font_cache() -> None:
    uid = os.getuid()
    chosen = os.environ.get("MPLCONFIGDIR")
    # A kernel forked from a process of root inherits root's choice; what it starts gets one of its own.
    if chosen is None or (chosen == _ROOTS_OWN and uid != 0):
        chosen = _ROOTS_OWN if uid == 0 else f"/tmp/.matplotlib-{uid}"
        os.environ["MPLCONFIGDIR"] = chosen
    elif chosen == _BAKED:
        return
    try:
        os.mkdir(chosen, 0o700)
    except OSError:
        return  # there already, or no place for it: matplotlib copes with both
    for name in os.listdir(_BAKED):
        os.symlink(f"{_BAKED}/{name}", f"{chosen}/{name}")


try:
    _seed_font_cache()
except OSError:
    pass  # a full /tmp must not keep Python from starting
