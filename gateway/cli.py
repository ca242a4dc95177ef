"""The command line: ``sandglass serve | run | sessions | mcp | token | doctor | stop``."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from . import __version__, local
from .clock import SystemClock
from .config import ConfigError, Settings
from .domain.scopes import Scope
from .errors import SandglassError
from .running import run_file
from .terminal import where

if TYPE_CHECKING:
    from .main import Started

OPEN_FILES = 1_048_576


def say(line: str) -> None:
    print(line, flush=True)


def _settings() -> Settings:
    settings = Settings.from_env(os.environ)
    settings.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    return settings


def serve(_: argparse.Namespace) -> int:
    """Find an engine, make the image, serve until stopped."""
    settings = _settings()
    for warning in settings.warnings:
        say(f"note: {warning}")
    running = run_file(settings.state)
    if running:
        say(f"A gateway runs already on this state directory (pid {running['pid']}): {running['url']}")
        return 1
    settings.logging.set_up()
    _raise_open_files()
    begun = time.monotonic()
    engine = None
    try:
        engine = local.find_engine(settings.docker_host, settings.state, settings.bootstrap_engine, say)
        say(f"engine: {engine.host}" + (" (its own, stopped with the gateway)" if engine.own else ""))
        image, image_id = (settings.image, "") if settings.image else local.ensure_image(engine.host, settings.state, say)
        say(f"image: {image}")
        return asyncio.run(_serve(settings, engine.host, image, image_id, begun))
    finally:
        if engine is not None and engine.own and settings.on_stop == "recycle":
            say("stopping: the engine")
            local.stop_engine(settings.state, say)
        say("stopped")


def _raise_open_files() -> None:
    """As many descriptors as the system grants: the usual 1,024 would be used up by some hundred websockets and their sandboxes."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def _serve(settings: Settings, docker_host: str, image: str, image_id: str, begun: float) -> int:
    from .main import Server  # here, as in the others: the gateway itself is a second's work to load, and only this command is one
    from .service import garbage

    server = Server(settings, docker_host=docker_host, image=image, image_id=image_id)
    try:
        started = await server.start()
        server.write_run_file(started)
        _banner(started, time.monotonic() - begun)
        garbage.settle()
        await server.stop_requested.wait()
        say("stopping")
        return 0
    finally:
        await server.stop(say)


def _banner(started: Started, took_s: float) -> None:
    say(f"ready after {took_s:.1f} s")
    for name, problem in started.problems.items():
        say(f"  tier {name}: not available: {problem}")
    for name in started.available:
        say(f"  tier {name}: available")
    say(f"  address: {started.url}   (output frames: {started.frame_url})")
    if started.login_url:
        say(f"  log in (works once): {started.login_url}")


def check(_: argparse.Namespace) -> int:
    """What is missing, and every limit in force."""
    from . import doctor

    return doctor.run(Settings.from_env(os.environ), say)


def token(arguments: argparse.Namespace) -> int:
    """Print a token made with the development key of this state directory."""
    settings = _settings()
    roles, scopes = arguments.role or ["user"], arguments.scope or []
    say(settings.auth.issue_dev_token(arguments.user, arguments.tenant, roles, arguments.ttl, SystemClock().now(), scopes))
    return 0


def mcp(arguments: argparse.Namespace) -> int:
    """Standard input and output belong to the protocol from here on; words for a person go to standard error."""
    from .mcp import proxy  # here, because nothing else of the command line needs the SDK

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="sandglass: %(message)s")
    url, token = where.where(arguments, os.environ)
    token()  # one that cannot be made is said before anything is promised
    asyncio.run(proxy.serve(url, token, arguments.session))
    return 0


def _parser(command: str) -> argparse.ArgumentParser:
    """``command``: the one that is called."""
    parser = argparse.ArgumentParser(
        prog="sandglass",
        description="A stateful session kernel gateway: each user a Jupyter kernel in a sandbox of their own that runs out like a sandglass.",
        epilog="All settings come from the environment; 'sandglass doctor' lists them with the values in force.",
    )
    parser.add_argument("--version", action="version", version=f"sandglass {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    one = commands.add_parser("serve", help="find or start an engine, make the kernel image, and serve until Ctrl-C")
    one.set_defaults(run=serve)
    one = commands.add_parser("run", help="run a script in a session of a running gateway; its exit status says how it ended (docs/agents.md)")
    _of_terminal(one, "run", command)
    one = commands.add_parser("sessions", help="list your sessions on a running gateway")
    _of_terminal(one, "sessions", command)
    one = commands.add_parser("mcp", help="an MCP server on standard input and output, in front of a running gateway (docs/mcp.md)")
    one.add_argument("--session", default="", help="the session that calls mean which name none (default: mcp)")
    where.add_who(one)
    one.set_defaults(run=mcp)
    one = commands.add_parser("token", help="print a token (with the development key only)")
    one.add_argument("--user", required=True, help="the token's subject")
    one.add_argument("--tenant", default="default", help="the user's tenant (default: default)")
    one.add_argument("--role", action="append", choices=["user", "tenant_admin", "admin"], help="may be repeated (default: user)")
    one.add_argument(
        "--scope", action="append", choices=[str(scope) for scope in Scope],
        help="narrow the token to this; may be repeated (default: all that the role allows)",
    )  # fmt: skip
    one.add_argument("--ttl", type=int, default=12 * 3600, metavar="SECONDS", help="how long it holds (default: 12 h)")
    one.set_defaults(run=token)
    one = commands.add_parser("doctor", help="say what is missing and how to mend it, and show every limit in force")
    one.set_defaults(run=check)
    one = commands.add_parser("stop", help="stop the gateway that runs on this state directory, in order")
    one.set_defaults(run=stop)
    return parser


def _of_terminal(parser: argparse.ArgumentParser, name: str, called: str) -> None:
    """A command that is a client of a gateway: loaded only when it is called, since ``serve`` needs no client."""
    if name == called:
        from .terminal import run, sessions

        (run.add_options if name == "run" else sessions.add_options)(parser)
        where.add_who(parser)
        parser.set_defaults(run=run.run if name == "run" else sessions.sessions)


def stop(_: argparse.Namespace) -> int:
    """Ask a running gateway to stop and wait until it has."""
    settings = _settings()
    running = run_file(settings.state)
    if not running:
        say("No gateway runs on this state directory.")
        return 0
    os.kill(int(running["pid"]), 15)
    for _n in range(1200):
        if not Path(f"/proc/{running['pid']}").exists():
            say("stopped")
            return 0
        time.sleep(0.1)
    say(f"The gateway (pid {running['pid']}) did not stop within two minutes.")
    return 1


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    arguments = _parser(argv[0] if argv else "").parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        return code
    except (SandglassError, ConfigError) as error:
        print(f"sandglass: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 141


if __name__ == "__main__":
    sys.exit(main())
