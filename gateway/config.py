"""The settings: the one place that reads the environment, and what it makes of it.

Only ``main``, ``cli`` and ``doctor`` use this; everything else is handed small values. ``python -m gateway.config``
writes ``docs/configuration.md`` to standard output.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .auth.keys import MIN_SECRET_BYTES, BadKey, load_keys, secret_key
from .auth.settings import AuthSettings
from .backends.s3_settings import S3Settings
from .config_table import NAMES, SECRETS, TABLE, VARIABLES, Variable
from .config_values import BadValue, show_size
from .domain.archives import ArchiveLimits
from .domain.files import PersistLimits
from .domain.inspection import Downloads
from .domain.model import Lifetimes, Limits
from .domain.quota import QuotaLimits
from .domain.retention import Retention
from .domain.sensitive import BadPatterns, SensitiveSettings, parse_patterns
from .domain.transcript import Transcripts
from .logs import LogSettings
from .service import world

MAX_FILE_BYTES = 1024 * 1024
MIN_SCRAPE_TOKEN = 16
_HEADER_SAFE = re.compile(rb"[!-~]+")
_JWKS_FILE = "SANDGLASS_JWT_JWKS_FILE"
_PATTERNS_FILE = "SANDGLASS_SENSITIVE_PATTERNS_FILE"
_FILES = (_JWKS_FILE, _PATTERNS_FILE)
"""Variables that name a file whose content is the setting."""
_OURS = "SANDGLASS_"
_TESTS = "SANDGLASS_TEST_"
_CLIENTS = frozenset({"SANDGLASS_URL", "SANDGLASS_TOKEN"})
"""What clients read: of a gateway's own no setting, and no mistake in its environment."""


class ConfigError(ValueError):
    """What is wrong with the settings, one line a variable; never the value of a secret."""


@dataclass(frozen=True, slots=True)
class Caps(world.Caps):
    """The service's caps, and those of the parts beside it."""

    session_bytes: int = PersistLimits().session_bytes
    max_live: int = 32


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, checked. ``frame_port`` -1: the one after ``port``. ``warnings``: sentences for the operator."""

    state: Path = Path(".sandglass")
    host: str = "127.0.0.1"
    port: int = 8888
    frame_port: int = -1
    public_url: str = ""
    frame_url: str = ""
    allowed_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    docker_host: str = ""
    bootstrap_engine: bool = True
    image: str = ""
    image_digest: str = ""
    allow_container: str = "auto"
    default_profile: str = ""
    pool_target: int = 2
    on_stop: str = "recycle"
    limits: Limits = field(default_factory=Limits)
    lifetimes: Lifetimes = field(default_factory=Lifetimes)
    caps: Caps = field(default_factory=Caps)
    quotas: QuotaLimits = field(default_factory=QuotaLimits)
    retention: Retention = field(default_factory=Retention)
    archives: ArchiveLimits = field(default_factory=ArchiveLimits)
    downloads: str = Downloads.CHECKED
    pictures: str = "anew"
    unpack: str = "sandbox"
    transcripts: Transcripts = field(default_factory=Transcripts)
    sensitive: SensitiveSettings = field(default_factory=SensitiveSettings)
    s3: S3Settings = field(default_factory=S3Settings)
    auth: AuthSettings = field(default_factory=AuthSettings)
    metrics_token: bytes = field(default=b"", repr=False)
    logging: LogSettings = field(default_factory=LogSettings)
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """Read and check everything; writes nothing. Raises ConfigError that names every bad variable."""
        problems: list[str] = []
        given: dict[str, Any] = {}
        for variable in VARIABLES.values():
            try:
                if (value := _read(variable, env)) is not None:
                    given[variable.path] = value
            except ConfigError as error:
                problems.append(str(error))
        if problems:
            raise ConfigError("\n".join(problems))
        settings = _put(cls(), given)
        settings = replace(settings, state=Path(settings.state))
        if settings.frame_port < 0:
            settings = replace(settings, frame_port=settings.port + 1 if settings.port else 0)
        settings = replace(settings, auth=replace(settings.auth, state=settings.state))
        problems = list(_contradictions(settings))
        if problems:
            raise ConfigError("\n".join(problems))
        return replace(settings, warnings=(*_typos(env), *_doubts(settings)))

    @property
    def loopback(self) -> bool:
        """Only this machine can connect."""
        return is_loopback(self.host)

    @property
    def container_allowed(self) -> bool:
        """Whether plain containers may be offered (docs/adr/0005): ``auto`` means on one's own machine only."""
        if self.allow_container == "auto":
            return self.auth.development and self.loopback
        return self.allow_container == "yes"


def _read(variable: Variable, env: Mapping[str, str]) -> Any:
    """The variable's value, from the environment or its file; None when not given, or empty. Raises ConfigError."""
    text = env.get(variable.name, "")
    if variable.secret:
        file = env.get(f"{variable.name}_FILE", "")
        if text and file:
            raise ConfigError(f"{variable.name} and {variable.name}_FILE are both set; give one of them")
        raw = _content(f"{variable.name}_FILE", file) if file else text.encode("utf-8", "surrogateescape")
        # The line's end that an editor leaves in a file is no part of a secret.
        return raw.strip() or None if raw else None
    if not text.strip():
        # An empty list is a choice of its own, where there can be one.
        return () if variable.name == "SANDGLASS_WARN_BEFORE" and variable.name in env else None
    if variable.name in _FILES:
        return _content(variable.name, text).decode("utf-8", "replace")
    try:
        return variable.kind.parse(text)
    except BadValue:
        raise ConfigError(f"{variable.name}={text!r}: must be {variable.kind.allowed}") from None


def _content(variable: str, file: str) -> bytes:
    try:
        with Path(file).open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "not a path"
        raise ConfigError(f"{variable}={file!r}: cannot be read ({reason})") from None
    if len(content) > MAX_FILE_BYTES or not content.strip():
        raise ConfigError(f"{variable}={file!r}: must hold between 1 byte and 1 MiB")
    return content


def _put(settings: Settings, given: Mapping[str, Any]) -> Settings:
    """The settings with these members, named by their paths, replaced."""
    changes: dict[str, Any] = {}
    for path, value in given.items():
        member, _, inner = path.partition(".")
        if inner:
            changes[member] = replace(changes.get(member, getattr(settings, member)), **{inner: value})
        else:
            changes[member] = value
    return replace(settings, **changes)


def _contradictions(s: Settings) -> Iterator[str]:
    if s.port and s.frame_port == s.port:
        yield f"SANDGLASS_FRAME_PORT={s.frame_port}: must differ from SANDGLASS_PORT, for it is another origin"
    if s.frame_port > 65535:
        yield "SANDGLASS_PORT=65535: leaves no port for the output frame; set SANDGLASS_FRAME_PORT"
    if s.public_url and s.frame_url and s.public_url.split("/")[2] == s.frame_url.split("/")[2]:
        yield "SANDGLASS_FRAME_URL: must be another origin than SANDGLASS_BASE_URL"
    for variable, material, jwks in (("SANDGLASS_JWT_KEY", s.auth.key, ""), (_JWKS_FILE, b"", s.auth.jwks)):
        try:
            load_keys(material, jwks, s.auth.algorithms)
        except BadKey as exc:
            yield f"{variable}: {exc}"
    if s.auth.jwks_url.startswith("http:") and not is_loopback(urlsplit(s.auth.jwks_url).hostname or ""):
        yield f"SANDGLASS_JWT_JWKS_URL={s.auth.jwks_url!r}: must be https, or whoever is on the way says who may log in"
    if s.auth.jwks_url and not set(s.auth.algorithms) - {"HS256"}:
        yield "SANDGLASS_JWT_ALGORITHMS: has only HS256, for which a provider's JWK set has no key"
    if s.auth.development and "HS256" not in s.auth.algorithms:
        yield f"SANDGLASS_JWT_ALGORITHMS: leaves out HS256, and none of SANDGLASS_JWT_KEY, {_JWKS_FILE} and SANDGLASS_JWT_JWKS_URL is given"
    if s.auth.secret:
        try:
            secret_key(s.auth.secret)
        except BadKey:
            yield f"SANDGLASS_SECRET: must be {MIN_SECRET_BYTES} random bytes or more"
    try:
        parse_patterns(s.sensitive.patterns)
    except BadPatterns as exc:
        yield f"{_PATTERNS_FILE}: {exc}"
    yield from _s3_contradictions(s.s3)

    if s.metrics_token and (len(s.metrics_token) < MIN_SCRAPE_TOKEN or not _HEADER_SAFE.fullmatch(s.metrics_token)):
        yield f"SANDGLASS_METRICS_TOKEN: must be {MIN_SCRAPE_TOKEN} or more printable ASCII characters without spaces"


def _s3_contradictions(s3: S3Settings) -> Iterator[str]:
    if int(s3.endpoint.rpartition("]")[2].partition(":")[2] or 1) not in range(1, 65536):
        yield f"SANDGLASS_S3_ENDPOINT={s3.endpoint!r}: there is no such port"
        return
    given = {"ENDPOINT": s3.endpoint, "BUCKET": s3.bucket, "ACCESS_KEY": s3.access_key, "SECRET_KEY": s3.secret_key}
    missing = [f"SANDGLASS_S3_{name}" for name, value in given.items() if not value]
    if missing and len(missing) < len(given):
        there = [f"SANDGLASS_S3_{name}" for name, value in given.items() if value]
        yield f"{', '.join(missing)}: must be set, too, for kept files to be in S3 ({', '.join(there)} is)"
    if not (s3.access_key + s3.secret_key).isascii() or not _HEADER_SAFE.fullmatch(s3.access_key + s3.secret_key + b"x"):
        yield "SANDGLASS_S3_ACCESS_KEY, SANDGLASS_S3_SECRET_KEY: must be printable ASCII characters without spaces"
    if s3.ca_file and not s3.secure:
        yield "SANDGLASS_S3_CA_FILE: has no effect with SANDGLASS_S3_SECURE=no; take one of them away"
    if s3.ca_file and not Path(s3.ca_file).is_file():
        yield f"SANDGLASS_S3_CA_FILE={s3.ca_file!r}: is no file"


def _typos(env: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(env):
        if name.startswith(_OURS) and not name.startswith(_TESTS) and name not in NAMES and name not in _CLIENTS:
            near = difflib.get_close_matches(name, NAMES, 1, 0.75)
            yield f"{name} is no setting of ours and has no effect" + (f"; is {near[0]} meant?" if near else "")


def _doubts(s: Settings) -> Iterator[str]:
    inside = s.limits.workspace_bytes + s.limits.inputs_bytes + s.limits.tmp_bytes + s.limits.shm_bytes
    if inside >= s.limits.memory_bytes:
        yield (
            f"SANDGLASS_MEMORY={show_size(s.limits.memory_bytes)} is not more than the files that a sandbox may hold "
            f"({show_size(inside)}), which count as memory: full folders will end it"
        )
    if s.auth.development and not s.loopback:
        yield (
            f"SANDGLASS_HOST={s.host} lets others connect while tokens are checked with a development key; "
            "set SANDGLASS_JWT_KEY, SANDGLASS_JWT_JWKS_FILE or SANDGLASS_JWT_JWKS_URL"
        )
    if s.allow_container == "yes" and not s.auth.development:
        yield "SANDGLASS_ALLOW_CONTAINER=yes: plain containers share this host's kernel; serve one tenant only"
    if s.s3.endpoint and not s.s3.secure and not is_loopback(urlsplit(f"//{s.s3.endpoint}").hostname or ""):
        yield f"SANDGLASS_S3_SECURE=no: users' files cross the network to {s.s3.endpoint} in the clear"


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


# ---------------------------------------------------------------- telling


def describe(settings: Settings) -> list[tuple[str, str, str, str]]:
    """``(variable, value in force, "(default ...)" where it differs, meaning)``, in the table's order; no secret."""
    defaults = Settings()
    out = []
    for variable in VARIABLES.values():
        value, default = _shown(variable, settings), _default(variable, defaults)
        note = f"(default {default or 'none'})" if variable.default is None and value != default else ""
        out.append((variable.name, value or "none", note, variable.meaning))
    return out


def _shown(variable: Variable, settings: Settings) -> str:
    value = _member(settings, variable.path)
    if variable.secret or variable.name in _FILES:
        return "set" if value else variable.default or ""
    return "" if value in ("", ()) else variable.kind.show(value)


def _default(variable: Variable, defaults: Settings) -> str:
    if variable.default is not None:
        return variable.default
    value = _member(defaults, variable.path)
    return "" if value in ("", ()) else variable.kind.show(value)


def _member(settings: Settings, path: str) -> Any:
    found: Any = settings
    for name in path.split("."):
        found = getattr(found, name)
    return found


def unreached() -> set[str]:
    """Members of Settings that no variable sets; a test holds this to the few that should have none."""
    paths = {variable.path for variable in VARIABLES.values()}
    found: set[str] = set()
    for each in fields(Settings):
        value = getattr(Settings(), each.name)
        inner = [f"{each.name}.{f.name}" for f in fields(value)] if is_dataclass(value) else [each.name]
        found |= {path for path in inner if path not in paths}
    return found


def markdown() -> str:
    """``docs/configuration.md``."""
    defaults = Settings()
    out = [
        "# Configuration",
        "",
        "Generated by `python -m gateway.config`; a test keeps it so. `sandglass doctor` shows the values in force.",
        "",
        "Settings are environment variables; an empty one counts as not given. Sizes count in powers of 1024",
        "(`2GiB`, `512M`), durations are `90s`, `20m`, `1h30m`, `500ms`, or plain seconds. A value that is not allowed",
        "stops the start with its name and what is allowed; a name that is not known is told as a warning.",
        "",
        f"{', '.join(f'`{name}`' for name in SECRETS)} can also be read from a file: `{SECRETS[0]}_FILE` and so on.",
    ]
    for title, group in TABLE:
        out += ["", f"## {title}", "", "| variable | default | meaning | allowed |", "|---|---|---|---|"]
        for v in group:
            default = _default(v, defaults)
            shown = default if v.default is not None else f"`{default}`" if default else "none"
            out.append(f"| `{v.name}` | {shown} | {v.meaning} | {v.kind.allowed} |")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown())
