"""Which gateway a command means, and who asks."""

from __future__ import annotations

import argparse
import getpass
from collections.abc import Callable, Mapping

from ..clock import SystemClock
from ..config import ConfigError, Settings
from ..running import run_file

TTL_S = 12 * 3600.0


def where(arguments: argparse.Namespace, env: Mapping[str, str]) -> tuple[str, Callable[[], str]]:
    """The address, and what gives the token: of SANDGLASS_URL and SANDGLASS_TOKEN, else of the gateway that runs on this state directory,
    with a token of its development key. Raises ConfigError, and then or with a token Forbidden."""
    url, given = env.get("SANDGLASS_URL", ""), env.get("SANDGLASS_TOKEN", "")
    if url and not given:
        raise ConfigError("SANDGLASS_URL is set, so SANDGLASS_TOKEN must be, too: a token that this gateway takes")
    if url and not url.startswith(("http://", "https://")):
        raise ConfigError("SANDGLASS_URL must begin with http:// or https://")
    if url:
        return url, lambda: given
    settings = Settings.from_env(env)
    url = str(run_file(settings.state).get("url", ""))
    if not url:
        raise ConfigError(f"no gateway runs on {settings.state}: start one (sandglass serve), or set SANDGLASS_URL and SANDGLASS_TOKEN")
    if given:
        return url, lambda: given
    made: tuple[float, str] | None = None

    def token() -> str:
        """Made anew at half of its time: a command may run for days."""
        nonlocal made
        now = SystemClock().now()
        if made is None or now > made[0]:
            made = now + TTL_S / 2, settings.auth.issue_dev_token(arguments.user, arguments.tenant, ["user"], TTL_S, now)
        return made[1]

    return url, token


def add_who(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--user", default=_me(), help="with the development key: whose sessions (default: %(default)s)")
    parser.add_argument("--tenant", default="default", help="with the development key: the user's tenant (default: %(default)s)")


def _me() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a uid without a name
        return "user"
