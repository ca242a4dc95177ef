"""Which gateway a command means, and who asks."""

from __future__ import annotations

import argparse
import getpass
from collections.abc import Mapping

from ..clock import SystemClock
from ..config import ConfigError, Settings
from ..main import run_file

TTL_S = 12 * 3600.0


def where(arguments: argparse.Namespace, env: Mapping[str, str]) -> tuple[str, str]:
    """``(address, token)``: of SANDGLASS_URL and SANDGLASS_TOKEN, else of the gateway that runs on this state directory, with a token of
    its development key. Raises ConfigError, Forbidden."""
    url, token = env.get("SANDGLASS_URL", ""), env.get("SANDGLASS_TOKEN", "")
    if url and not token:
        raise ConfigError("SANDGLASS_URL is set, so SANDGLASS_TOKEN must be, too: a token that this gateway takes")
    if not url or not token:
        settings = Settings.from_env(env)
        url = url or str(run_file(settings.state).get("url", ""))
        if not url:
            raise ConfigError(f"no gateway runs on {settings.state}: start one (sandglass serve), or set SANDGLASS_URL and SANDGLASS_TOKEN")
        token = token or settings.auth.issue_dev_token(arguments.user, arguments.tenant, ["user"], TTL_S, SystemClock().now())
    if not url.startswith(("http://", "https://")):
        raise ConfigError("SANDGLASS_URL must begin with http:// or https://")
    return url, token


def add_who(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--user", default=_me(), help="with the development key: whose sessions (default: %(default)s)")
    parser.add_argument("--tenant", default="default", help="with the development key: the user's tenant (default: %(default)s)")


def _me() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a uid without a name
        return "user"
