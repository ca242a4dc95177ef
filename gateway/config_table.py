"""Every setting, on one table: variable, where it goes, what it may be, what it means.

The defaults are those of the value classes (``domain.model``, ``service.world``, ``auth``, ``logs``) and are not
repeated here. ``docs/configuration.md`` and ``sandglass doctor`` are made from this table.
"""

from __future__ import annotations

from dataclasses import dataclass

from .auth.keys import ALGORITHMS
from .config_values import Kind, by_tenant, choice, count, duration, durations, hosts, name, number, origins, size, switch, url, words
from .protocol.frames import MAX_MESSAGE

KIB, MIB, GIB, TIB = 1024, 1024**2, 1024**3, 1024**4
HOUR, DAY = 3600.0, 86400.0


@dataclass(frozen=True, slots=True)
class Variable:
    """``path``: the member of Settings that it sets. ``secret``: never shown. ``default``: words for the default."""

    name: str
    path: str
    kind: Kind
    meaning: str
    secret: bool = False
    default: str | None = None


def _of_both(name: str, member: str, kind: Kind, meaning: str) -> tuple[Variable, Variable]:
    """A quota of each user, and the same of each tenant."""
    return (
        Variable(f"SANDGLASS_USER_{name}", f"quotas.user_{member}", kind, f"{meaning}, of one user"),
        Variable(f"SANDGLASS_TENANT_{name}", f"quotas.tenant_{member}", kind, "the same, of a tenant's users together"),
    )


TEXT = name("any text")
TABLE: tuple[tuple[str, tuple[Variable, ...]], ...] = (
    (
        "Server",
        (
            Variable("SANDGLASS_STATE", "state", TEXT, "folder of everything that lasts"),
            Variable("SANDGLASS_HOST", "host", name("a host name or address"), "address to listen on"),
            Variable("SANDGLASS_PORT", "port", count(0, 65535), "port of the page and the APIs; 0 takes any free one"),
            Variable(
                "SANDGLASS_FRAME_PORT",
                "frame_port",
                count(0, 65535),
                "port of the output frame's own origin; 0 takes any free one",
                default="SANDGLASS_PORT + 1",
            ),
            Variable("SANDGLASS_BASE_URL", "public_url", url(), "public address, where a proxy stands in front"),
            Variable("SANDGLASS_FRAME_URL", "frame_url", url(), "public address of the output frame; another origin"),
            Variable("SANDGLASS_ALLOWED_ORIGINS", "allowed_origins", origins(), "further origins whose pages may call"),
            Variable("SANDGLASS_ALLOWED_HOSTS", "allowed_hosts", hosts(), "further names under which `/mcp` may be reached"),
        ),
    ),
    (
        "Engine and sandboxes",
        (
            Variable("DOCKER_HOST", "docker_host", TEXT, "the container engine; empty looks for one"),
            Variable(
                "SANDGLASS_BOOTSTRAP_ENGINE",
                "bootstrap_engine",
                switch("auto", "no"),
                "install and start an engine when none answers (as root)",
            ),
            Variable("SANDGLASS_IMAGE", "image", TEXT, "kernel image, with its digest (`name@sha256:...`) or without; empty builds it"),
            Variable(
                "SANDGLASS_IMAGE_DIGEST",
                "image_digest",
                name("`sha256:` and 64 hexadecimal digits", r"sha256:[0-9a-f]{64}"),
                "the only kernel image that is served: its id, or its digest in a registry; another one stops the start. "
                "Empty: what the build made, or what SANDGLASS_IMAGE names",
            ),
            Variable(
                "SANDGLASS_ALLOW_CONTAINER",
                "allow_container",
                choice("auto", "yes", "no"),
                "the tier `container` (shared host kernel); auto: on one's own machine only",
            ),
            Variable(
                "SANDGLASS_DEFAULT_PROFILE",
                "default_profile",
                name("the name of a profile", r"[a-z0-9_-]{1,64}"),
                "profile of a session that names none; empty takes the strongest available",
            ),
            Variable("SANDGLASS_POOL_TARGET", "pool_target", count(0, 100), "warm sandboxes kept ready for each profile"),
            Variable(
                "SANDGLASS_ON_STOP",
                "on_stop",
                choice("recycle", "keep"),
                "at an orderly stop: end sandboxes, or leave them to the next gateway",
            ),
        ),
    ),
    (
        "Lifetimes",
        (
            Variable("SANDGLASS_IDLE_TIMEOUT", "lifetimes.idle_s", duration(1, 30 * DAY), "idle time that ends a sandbox"),
            Variable("SANDGLASS_MAX_LIFETIME", "lifetimes.max_s", duration(1, 30 * DAY), "a sandbox's life, whatever it does"),
            Variable(
                "SANDGLASS_MAX_EXTENSION",
                "caps.extension_s",
                duration(0, 30 * DAY),
                "by how much admins may extend one sandbox's life, in all; 0: not at all",
            ),
            Variable(
                "SANDGLASS_WARN_BEFORE",
                "lifetimes.warn_before_s",
                durations(0.001, DAY),
                "how long before either end it is announced",
            ),
            Variable(
                "SANDGLASS_DRAIN_GRACE",
                "lifetimes.drain_grace_s",
                duration(0, HOUR),
                "time for a running cell once the maximum is reached",
            ),
        ),
    ),
    (
        "Limits of one sandbox",
        (
            Variable("SANDGLASS_MEMORY", "limits.memory_bytes", size(64 * MIB, 16 * TIB), "memory, its tmpfs included"),
            Variable("SANDGLASS_CPUS", "limits.cpus", number(0.05, 1024), "processor cores"),
            Variable(
                "SANDGLASS_CPU_SUSTAINED",
                "caps.cpu_sustained_s",
                duration(0, 30 * DAY),
                "so long at 80 % of its cores or more, and a sandbox is shown to admins as one that uses much; 0: never",
            ),
            Variable("SANDGLASS_PROCESSES", "limits.processes", count(16, 100_000), "processes and threads"),
            Variable("SANDGLASS_WORKSPACE", "limits.workspace_bytes", size(MIB, TIB), "the workspace"),
            Variable("SANDGLASS_INPUTS", "limits.inputs_bytes", size(MIB, TIB), "the folder of uploads"),
            Variable("SANDGLASS_TMP", "limits.tmp_bytes", size(MIB, TIB), "`/tmp`"),
            Variable("SANDGLASS_SHM", "limits.shm_bytes", size(MIB, TIB), "`/dev/shm`"),
            Variable("SANDGLASS_INODES", "limits.workspace_inodes", count(100, 10_000_000), "files in the workspace"),
            Variable("SANDGLASS_OPEN_FILES", "limits.open_files", count(64, 1_000_000), "open files of a process"),
        ),
    ),
    (
        "Limits of one execution",
        (
            Variable(
                "SANDGLASS_EXECUTION_TIMEOUT_AGENT",
                "limits.execution_s_agent",
                duration(1, 30 * DAY),
                "wall clock of an execution over REST, unless it asks for less",
            ),
            Variable(
                "SANDGLASS_EXECUTION_TIMEOUT_PERSON",
                "limits.execution_s_person",
                duration(1, 30 * DAY),
                "wall clock of an execution over the Jupyter protocol and the page",
            ),
            Variable("SANDGLASS_CPU_TIME", "limits.cpu_s", duration(1, 30 * DAY), "processor time"),
            Variable(
                "SANDGLASS_INTERRUPT_GRACE",
                "limits.interrupt_grace_s",
                duration(0.1, HOUR),
                "after an interrupt, until the kernel is killed",
            ),
            Variable(
                "SANDGLASS_KILL_GRACE",
                "limits.kill_grace_s",
                duration(0.1, HOUR),
                "after that, until the sandbox is killed",
            ),
            Variable("SANDGLASS_OUTPUT", "limits.output_bytes", size(KIB, 16 * GIB), "output"),
            Variable("SANDGLASS_OUTPUT_MESSAGES", "limits.output_messages", count(10, 100_000_000), "output messages"),
            Variable("SANDGLASS_MESSAGE", "limits.message_bytes", size(64 * KIB, MAX_MESSAGE), "one message"),
            Variable(
                "SANDGLASS_RETAIN",
                "limits.retain_bytes",
                size(MIB, GIB),
                "output that a sandbox keeps while no gateway takes it",
            ),
        ),
    ),
    (
        "What one user, one session and the gateway may hold",
        (
            Variable("SANDGLASS_USER_SANDBOXES", "caps.live_sandboxes_a_user", count(1, 10_000), "live sandboxes a user"),
            Variable("SANDGLASS_USER_SESSIONS", "caps.sessions_a_user", count(1, 100_000), "sessions a user"),
            Variable("SANDGLASS_SANDBOXES", "caps.max_live", count(1, 100_000), "sandboxes in all, warm ones included"),
            Variable("SANDGLASS_QUEUE", "caps.queued_executions", count(1, 10_000), "queued executions a session (REST)"),
            Variable(
                "SANDGLASS_JUPYTER_QUEUE",
                "caps.jupyter_queue",
                count(1, 100_000),
                "queued executions a session (Jupyter: run all)",
            ),
            Variable("SANDGLASS_ATTACHMENTS", "caps.attachments", count(1, 10_000), "open streams a session"),
            Variable("SANDGLASS_UPLOAD", "caps.upload_bytes", size(KIB, 64 * GIB), "one uploaded file"),
            Variable("SANDGLASS_ARTIFACT", "caps.artifact_bytes", size(KIB, 64 * GIB), "one kept file"),
            Variable("SANDGLASS_KEPT", "caps.session_bytes", size(KIB, TIB), "kept files of a session together"),
            Variable(
                "SANDGLASS_CHECKPOINT",
                "caps.checkpoint_bytes",
                size(0, 64 * GIB),
                "files stored after one execution; the rest follows at the end of the sandbox",
            ),
            Variable(
                "SANDGLASS_TRANSCRIPT_SIZE",
                "caps.transcript_bytes",
                size(64 * KIB, GIB),
                "a session's transcript; past it the oldest outputs go, then the oldest cells",
            ),
            Variable("SANDGLASS_TRANSCRIPT_CELL", "caps.cell_bytes", size(KIB, 64 * MIB), "output of one cell in a transcript"),
            Variable(
                "SANDGLASS_JOURNAL",
                "caps.journal_bytes",
                size(MIB, 64 * GIB),
                "a session's messages kept for those who come back",
            ),
        ),
    ),
    (
        "Quotas of each user and each tenant (0: none)",
        (
            *_of_both("EXECUTIONS", "executions", count(0, 10**9), "executions a minute"),
            *_of_both("OUTPUT", "output_bytes", size(0, 1024 * TIB), "output an hour"),
            *_of_both("UPLOADS", "upload_bytes", size(0, 1024 * TIB), "uploads an hour"),
            *_of_both("OPEN_EXECUTIONS", "open_executions", count(0, 10**9), "executions that run or wait, in all sessions"),
            Variable("SANDGLASS_TENANT_SANDBOXES", "quotas.tenant_sandboxes", count(0, 100_000), "live sandboxes of a tenant's users together"),
        ),
    ),
    (
        "Archives and downloads",
        (
            Variable(
                "SANDGLASS_ARCHIVE_UNPACKED",
                "archives.unpacked_bytes",
                size(MIB, 64 * GIB),
                "what an archive may unpack to, with those within it",
            ),
            Variable(
                "SANDGLASS_ARCHIVE_RATIO",
                "archives.ratio",
                count(2, 1_000_000),
                "by how much more than its own size, once that is past 16 MiB",
            ),
            Variable("SANDGLASS_ARCHIVE_ENTRIES", "archives.entries", count(1, 10_000_000), "entries, with those of archives within it"),
            Variable("SANDGLASS_ARCHIVE_DEPTH", "archives.depth", count(0, 1000), "folders above an entry"),
            Variable("SANDGLASS_ARCHIVE_NESTING", "archives.nesting", count(0, 16), "archives around an archive (a workbook is one)"),
            Variable("SANDGLASS_ARCHIVE_CPU", "archives.cpu_s", duration(1, HOUR), "processor time for looking into one"),
            Variable(
                "SANDGLASS_PICTURES",
                "pictures",
                choice("stored", "anew"),
                "how pictures are handed out: as they are stored, or encoded anew in a sandbox of no session",
            ),
            Variable(
                "SANDGLASS_UNPACK",
                "unpack",
                choice("sandbox", "host"),
                "where archives are unpacked to be looked into: in a sandbox of no session, or in a bounded process on this host",
            ),
            Variable(
                "SANDGLASS_DOWNLOADS",
                "downloads",
                choice("all", "checked", "known"),
                "what may be downloaded; checked: no program and no bad archive; known: no false name and no unknown type either",
            ),
        ),
    ),
    (
        "What a transcript keeps (each user sees it, and can delete their own)",
        (
            Variable(
                "SANDGLASS_TRANSCRIPT",
                "transcripts.policy",
                choice("off", "hash", "full"),
                "of each cell: nothing; hashes, sizes and how it ended; or its code and output as well",
            ),
            Variable("SANDGLASS_TRANSCRIPT_TENANTS", "transcripts.tenants", by_tenant("off", "hash", "full"), "the same for single tenants"),
        ),
    ),
    (
        "Outputs that look like secrets",
        (
            Variable(
                "SANDGLASS_SENSITIVE",
                "sensitive.handling",
                choice("off", "mark", "hold"),
                "outputs with keys, tokens, passwords, paths of a host: handed out, with the kinds found in them, or not handed out at all",
            ),
            Variable(
                "SANDGLASS_SENSITIVE_PATTERNS_FILE",
                "sensitive.patterns",
                TEXT,
                "file of further patterns, one a line: TENANT (or `*`), a kind's name, a regular expression",
            ),
        ),
    ),
    (
        "What goes by age (each stays at least so long, and up to three hours longer)",
        (
            Variable(
                "SANDGLASS_RETAIN_ARTIFACTS",
                "retention.artifacts_s",
                duration(HOUR, 3650 * DAY),
                "kept files of an ended session, from its end",
            ),
            Variable(
                "SANDGLASS_RETAIN_VERSIONS",
                "retention.versions_s",
                duration(HOUR, 3650 * DAY),
                "an older version of a kept file, from when it was superseded; the newest of a living session always stays",
            ),
            Variable(
                "SANDGLASS_KEEP_VERSIONS",
                "retention.versions",
                count(0, 100_000),
                "older versions of a kept file beside the newest; more go at the next look, whatever their age",
            ),
            Variable(
                "SANDGLASS_RETAIN_JOURNALS",
                "retention.journals_s",
                duration(0, 3650 * DAY),
                "messages and output of an ended session, from its end",
            ),
            Variable(
                "SANDGLASS_RETAIN_TRANSCRIPTS",
                "retention.transcripts_s",
                duration(HOUR, 3650 * DAY),
                "transcript of an ended session, from its end; that of a living session stays",
            ),
            Variable(
                "SANDGLASS_RETAIN_HISTORY",
                "retention.history_s",
                duration(HOUR, 3650 * DAY),
                "finished executions with their traces, notices that were told, records of sandboxes",
            ),
            Variable(
                "SANDGLASS_RETAIN_SESSIONS",
                "retention.sessions_s",
                duration(HOUR, 3650 * DAY),
                "the record of an ended session, once nothing is left of it",
            ),
            Variable(
                "SANDGLASS_RETAIN_DORMANT", "retention.dormant_s", duration(0, 3650 * DAY),
                "a session without a sandbox in which nothing was done; then it ends, and its files go as those of an ended one; 0: it stays",
            ),
            Variable("SANDGLASS_RETAIN_AUDIT", "retention.audit_s", duration(DAY, 3650 * DAY), "audit entries"),
        ),
    ),
    (
        "Where kept files are stored",
        (
            Variable(
                "SANDGLASS_S3_ENDPOINT",
                "s3.endpoint",
                name("a host, with a port if need be, such as s3.example.org:9000", r"([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?"),
                "S3 server that holds the kept files; empty keeps them in SANDGLASS_STATE",
            ),
            Variable("SANDGLASS_S3_BUCKET", "s3.bucket", name("a bucket's name", r"(?!.*\.\.)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"), "its bucket"),
            Variable("SANDGLASS_S3_REGION", "s3.region", name("a region's name", r"[A-Za-z0-9_-]{1,64}"), "its region"),
            Variable(
                "SANDGLASS_S3_PREFIX",
                "s3.prefix",
                name(
                    "parts of letters, digits, `.`, `_` and `-`, with slashes",
                    r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}(/[A-Za-z0-9_-][A-Za-z0-9._-]{0,99})?",
                ),
                "beginning of every key; another one for each gateway that shares the bucket",
            ),
            Variable("SANDGLASS_S3_ACCESS_KEY", "s3.access_key", TEXT, "name of the key", secret=True, default="none"),
            Variable("SANDGLASS_S3_SECRET_KEY", "s3.secret_key", TEXT, "its secret", secret=True, default="none"),
            Variable("SANDGLASS_S3_SECURE", "s3.secure", switch("yes", "no"), "TLS"),
            Variable("SANDGLASS_S3_CA_FILE", "s3.ca_file", TEXT, "file of authorities for its certificate; empty takes the system's"),
            Variable("SANDGLASS_S3_CREATE_BUCKET", "s3.create_bucket", switch("yes", "no"), "make the bucket at the start where there is none"),
            Variable(
                "SANDGLASS_S3_ENCRYPTION",
                "s3.encryption",
                choice("none", "sse-s3"),
                "ask the server to encrypt what it stores; none leaves it to the bucket's own rule",
            ),
        ),
    ),
    (
        "Who may log in",
        (
            Variable(
                "SANDGLASS_JWT_KEY",
                "auth.key",
                TEXT,
                "key that checks tokens: a secret of 32 random bytes or more (HS256), or public keys in PEM",
                secret=True,
                default="a development key, for `sandglass token`",
            ),
            Variable("SANDGLASS_JWT_JWKS_FILE", "auth.jwks", TEXT, "file with a JWK set of public keys"),
            Variable(
                "SANDGLASS_JWT_JWKS_URL",
                "auth.jwks_url",
                url(),
                "address of the identity provider's JWK set; https, except on this machine. "
                "Read at the start, on a schedule and when a token names a new key",
            ),
            Variable(
                "SANDGLASS_JWT_JWKS_REFRESH",
                "auth.jwks_refresh_s",
                duration(10, DAY),
                "how often it is read; a key that it leaves out then holds no longer",
            ),
            Variable("SANDGLASS_JWT_ALGORITHMS", "auth.algorithms", words(*ALGORITHMS), "algorithms taken"),
            Variable("SANDGLASS_JWT_ISSUER", "auth.issuer", TEXT, "`iss` that a token must have"),
            Variable("SANDGLASS_JWT_AUDIENCE", "auth.audience", TEXT, "`aud` that a token must have"),
            Variable("SANDGLASS_JWT_LEEWAY", "auth.leeway_s", duration(0, 600), "by how much clocks may differ"),
            Variable(
                "SANDGLASS_SECRET",
                "auth.secret",
                TEXT,
                "secret that page sessions are signed with, 32 random bytes or more",
                secret=True,
                default="made once, in SANDGLASS_STATE",
            ),
            Variable(
                "SANDGLASS_METRICS_TOKEN",
                "metrics_token",
                TEXT,
                "token that reads `/metrics` and opens nothing else, 16 characters or more; an admin's token reads them too",
                secret=True,
                default="none",
            ),
        ),
    ),
    (
        "Logs",
        (
            Variable("SANDGLASS_LOG_LEVEL", "logging.level", choice("debug", "info", "warning", "error"), "what is told"),
            Variable(
                "SANDGLASS_LOG_FORMAT",
                "logging.format",
                choice("auto", "json", "text"),
                "auto: text on a terminal, else JSON",
            ),
        ),
    ),
)
VARIABLES = {variable.name: variable for _, group in TABLE for variable in group}
SECRETS = tuple(variable.name for variable in VARIABLES.values() if variable.secret)
NAMES = frozenset(VARIABLES) | {f"{name}_FILE" for name in SECRETS}
