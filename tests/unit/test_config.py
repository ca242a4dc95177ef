"""Settings: defaults as promised, values as written, one clear error, no secret told, docs that match."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway import config, config_values
from gateway.config import ConfigError, Settings, describe, markdown, unreached
from gateway.config_table import TABLE, VARIABLES
from gateway.domain.transcript import Policy

SECRET = "0123456789abcdefghijklmnopqrstuvwxyz-planted"
DOCS = Path(__file__).parents[2] / "docs" / "configuration.md"
RSA = rsa.generate_private_key(65537, 2048)
PEM = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def read(**env: str) -> Settings:
    return Settings.from_env({f"SANDGLASS_{name}": value for name, value in env.items()})


def test_the_defaults_are_the_promised_ones() -> None:
    s = Settings.from_env({})
    assert (s.lifetimes.idle_s, s.lifetimes.max_s, s.lifetimes.warn_before_s) == (1200, 28800, (300, 60))
    assert (s.lifetimes.drain_grace_s, s.limits.interrupt_grace_s, s.limits.kill_grace_s) == (30, 5, 5)
    assert (s.limits.execution_s_agent, s.limits.execution_s_person) == (300, 3600)
    assert (s.limits.memory_bytes, s.limits.cpus, s.limits.processes) == (2 * 1024**3, 1, 128)
    assert (s.limits.workspace_bytes, s.limits.tmp_bytes, s.limits.shm_bytes) == (512 << 20, 128 << 20, 64 << 20)
    assert (s.limits.workspace_inodes, s.limits.output_bytes, s.limits.output_messages) == (20_000, 32 << 20, 100_000)
    assert (s.limits.message_bytes, s.caps.queued_executions, s.caps.live_sandboxes_a_user) == (64 << 20, 32, 8)
    assert (s.caps.upload_bytes, s.caps.artifact_bytes, s.caps.session_bytes) == (256 << 20, 256 << 20, 2 << 30)
    assert (s.pool_target, s.retention.artifacts_s, s.retention.audit_s) == (2, 30 * 86400, 180 * 86400)
    assert (s.state, s.host, s.port, s.frame_port) == (Path(".sandglass"), "127.0.0.1", 8888, 8889)
    assert (s.transcripts.of("anybody"), s.retention.transcripts_s) == (Policy.FULL, 30 * 86400)
    assert s.container_allowed
    assert s.warnings == ()


def test_every_setting_is_read_where_it_belongs() -> None:
    s = read(
        STATE="/srv/x",
        HOST="::1",
        PORT="0",
        IDLE_TIMEOUT="5s",
        MAX_LIFETIME="1h30m",
        WARN_BEFORE="1, 2m,500ms",
        EXECUTION_TIMEOUT_AGENT="90",
        EXECUTION_TIMEOUT_PERSON="2h",
        MEMORY="4GiB",
        CPUS="0.5",
        PROCESSES="64",
        WORKSPACE="1g",
        ON_STOP="KEEP",
        POOL_TARGET="0",
        BOOTSTRAP_ENGINE="no",
        ALLOW_CONTAINER="no",
        UPLOAD="10MB",
        USER_SANDBOXES="3",
        SANDBOXES="12",
        ALLOWED_ORIGINS="https://Lab.example.org, http://localhost:3000",
        BASE_URL="https://sg.example.org/",
        JWT_ALGORITHMS="hs256,EDDSA",
        LOG_LEVEL="debug",
        DEFAULT_PROFILE="container",
        TRANSCRIPT="Hash",
        TRANSCRIPT_TENANTS="acme=off, t=2=FULL",
    )
    assert (s.state, s.host, s.port, s.frame_port) == (Path("/srv/x"), "::1", 0, 0)
    assert (s.lifetimes.idle_s, s.lifetimes.max_s, s.lifetimes.warn_before_s) == (5, 5400, (120, 1, 0.5))
    assert (s.limits.execution_s_agent, s.limits.execution_s_person) == (90, 7200)
    assert (s.limits.memory_bytes, s.limits.cpus, s.limits.processes, s.limits.workspace_bytes) == (
        4 << 30,
        0.5,
        64,
        1 << 30,
    )
    assert (s.on_stop, s.pool_target, s.bootstrap_engine, s.container_allowed) == ("keep", 0, False, False)
    assert (s.caps.upload_bytes, s.caps.live_sandboxes_a_user, s.caps.max_live) == (10 << 20, 3, 12)
    assert s.allowed_origins == ("https://lab.example.org", "http://localhost:3000")
    assert s.public_url == "https://sg.example.org"
    assert s.auth.algorithms == ("HS256", "EdDSA")
    assert s.auth.state == Path("/srv/x")
    assert (s.logging.level, s.default_profile) == ("debug", "container")
    assert [s.transcripts.of(tenant) for tenant in ("acme", "t=2", "other")] == [Policy.OFF, Policy.FULL, Policy.HASH]
    assert Settings.from_env({"DOCKER_HOST": "tcp://10.0.0.1:2375"}).docker_host == "tcp://10.0.0.1:2375"


def test_empty_is_not_given_but_no_warnings_can_be_chosen() -> None:
    assert read(PORT="", MEMORY=" ", JWT_KEY="").port == 8888
    assert read(WARN_BEFORE="").lifetimes.warn_before_s == ()


BAD = {
    "PORT": ["x", "-1", "65536", "1.5", "٣"],
    "IDLE_TIMEOUT": ["0", "soon", "-5s", "5x", "31d", "1e3", "5 m 3", "inf", "nan"],
    "WARN_BEFORE": ["5m;1m", "0", "1,2,3,4,5,6,7,8,9"],
    "MEMORY": ["2GX", "big", "-1", "1MiB", "0x10"],
    "CPUS": ["0", "many", "-1", "nan"],
    "PROCESSES": ["0", "1.5", "9" * 30],
    "ALLOW_CONTAINER": ["maybe", "true"],
    "BOOTSTRAP_ENGINE": ["yes"],
    "ON_STOP": ["die"],
    "BASE_URL": [
        "sg.example.org",
        "ftp://x",
        "https://",
        "http://x?y=1",
        "http://u:p@x",
        "http://x:99999",
        "http://a b",
    ],
    "ALLOWED_ORIGINS": ["https://x/path", "*", "null"],
    "JWT_ALGORITHMS": ["none", "HS256,none", "HS512", ","],
    "JWT_KEY": ["short", "a" * 64, "-----BEGIN PUBLIC KEY-----"],
    "SECRET": ["short"],
    "METRICS_TOKEN": ["short-of-sixteen"[:-1], "sixteen characters, but spaces", "schlüssel-mit-umlaut"],
    "LOG_LEVEL": ["verbose"],
    "DEFAULT_PROFILE": ["a b", "../x"],
    "MESSAGE": ["65MiB"],
    "FRAME_PORT": ["8888"],
    "JWT_JWKS_FILE": ["/does/not/exist"],
    "HOST": ["a\tb", "x" * 300],
    "S3_ENDPOINT": ["https://s3.example.org", "s3.example.org/path", "user:word@s3.example.org", "s3 example", "s3.example.org:99999"],
    "S3_BUCKET": ["Up", "a", "a..b", "a/b", "-ab"],
    "S3_PREFIX": ["/a", "a//b", "../a", "a b"],
    "S3_SECURE": ["maybe"],
    "S3_CREATE_BUCKET": ["1"],
    "S3_ENCRYPTION": ["kms"],
    "TRANSCRIPT": ["some", "on"],
    "TRANSCRIPT_TENANTS": ["acme", "=off", "acme=on", "a=off,a=full", "a=off,"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_a_bad_value_is_one_clear_error(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(**{name: value})
    said = str(caught.value)
    assert said.count("\n") == 0
    assert f"SANDGLASS_{name}" in said
    if name in ("JWT_KEY", "SECRET", "METRICS_TOKEN"):
        assert value not in said
    elif name != "JWT_ALGORITHMS":
        assert repr(value) in said or value in said


def test_all_bad_values_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        read(PORT="x", MEMORY="y", LOG_LEVEL="z")
    assert len(str(caught.value).splitlines()) == 3


def test_contradictions() -> None:
    for env, says in (
        ({"PORT": "65535"}, "FRAME_PORT"),
        ({"BASE_URL": "https://a.example", "FRAME_URL": "https://a.example"}, "another origin"),
        ({"JWT_ALGORITHMS": "RS256"}, "leaves out HS256"),
        ({"JWT_KEY": SECRET, "JWT_ALGORITHMS": "RS256"}, "HS256"),
        ({"JWT_KEY": PEM.decode(), "JWT_ALGORITHMS": "HS256"}, "RS256"),
    ):
        with pytest.raises(ConfigError, match=says):
            read(**env)


def test_secrets_come_from_files_too(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(SECRET + "\n")
    by_file, by_value = read(JWT_KEY_FILE=str(file)), read(JWT_KEY=SECRET)
    assert by_file.auth.key == by_value.auth.key == SECRET.encode()
    assert not by_file.auth.development
    assert not by_file.container_allowed
    with pytest.raises(ConfigError, match="both"):
        read(JWT_KEY_FILE=str(file), JWT_KEY=SECRET)
    file.write_text("\n")
    with pytest.raises(ConfigError, match="JWT_KEY_FILE"):
        read(JWT_KEY_FILE=str(file))
    file.write_bytes(PEM)
    assert [key.algorithm for key in read(JWT_KEY_FILE=str(file)).auth.verify_keys()] == ["RS256"]
    assert read(SECRET=SECRET).auth.page_secret == SECRET.encode()


S3 = {"S3_ENDPOINT": "127.0.0.1:9000", "S3_BUCKET": "files", "S3_ACCESS_KEY": "sandglass", "S3_SECRET_KEY": SECRET}


def test_kept_files_in_s3(tmp_path: Path) -> None:
    assert read().s3.endpoint == ""
    s = read(**S3, S3_REGION="eu-west-1", S3_PREFIX="one/two", S3_SECURE="no", S3_CREATE_BUCKET="yes", S3_ENCRYPTION="sse-s3").s3
    assert (s.endpoint, s.bucket, s.region, s.prefix) == ("127.0.0.1:9000", "files", "eu-west-1", "one/two")
    assert (s.access_key, s.secret_key) == (b"sandglass", SECRET.encode())
    assert (s.secure, s.create_bucket, s.encryption) == (False, True, "sse-s3")
    assert (read(**S3).s3.secure, read(**S3).s3.create_bucket) == (True, False)
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n")
    by_file = {**S3, "S3_SECRET_KEY_FILE": str(file)}
    del by_file["S3_SECRET_KEY"]
    assert read(**by_file).s3 == read(**S3).s3
    for missing in S3:
        with pytest.raises(ConfigError, match=f"SANDGLASS_{missing}: must be set"):
            read(**{name: value for name, value in S3.items() if name != missing})
    with pytest.raises(ConfigError, match="no file"):
        read(**S3, S3_CA_FILE=str(tmp_path / "absent"))
    with pytest.raises(ConfigError, match="no effect"):
        read(**S3, S3_CA_FILE=str(file), S3_SECURE="no")
    with pytest.raises(ConfigError, match="printable ASCII") as caught:
        read(**{**S3, "S3_SECRET_KEY": SECRET + "ä"})
    assert SECRET not in str(caught.value)
    assert read(**S3, S3_SECURE="no").warnings == ()
    (warning,) = read(**{**S3, "S3_ENDPOINT": "s3.example.org"}, S3_SECURE="no").warnings
    assert "SANDGLASS_S3_SECURE=no" in warning


def test_a_jwk_set_is_read_and_checked(tmp_path: Path) -> None:
    def jwk(kind: Any, key: Any, kid: str) -> dict[str, Any]:
        return json.loads(kind.to_jwk(key.public_key())) | {"kid": kid}  # type: ignore[no-any-return]

    file = tmp_path / "jwks.json"
    elliptic = jwk(jwt.algorithms.ECAlgorithm, ec.generate_private_key(ec.SECP256R1()), "2")
    file.write_text(json.dumps({"keys": [jwk(jwt.algorithms.RSAAlgorithm, RSA, "1"), elliptic]}))
    assert [key.kid for key in read(JWT_JWKS_FILE=str(file)).auth.verify_keys()] == ["1", "2"]
    assert [key.kid for key in read(JWT_JWKS_FILE=str(file), JWT_ALGORITHMS="ES256").auth.verify_keys()] == ["2"]
    for content, env in (("{}", {}), (file.read_text(), {"JWT_ALGORITHMS": "EdDSA"})):
        file.write_text(content)
        with pytest.raises(ConfigError, match="JWKS_FILE"):
            read(JWT_JWKS_FILE=str(file), **env)


def test_no_secret_is_shown_anywhere() -> None:
    s = read(JWT_KEY=SECRET, SECRET=SECRET[::-1], METRICS_TOKEN=SECRET + SECRET[::-1], **{**S3, "S3_ACCESS_KEY": SECRET[::-1]})
    for said in (repr(s), str(s), repr(describe(s)), repr(s.auth), repr(s.s3)):
        assert SECRET not in said
        assert SECRET[::-1] not in said


def test_typos_and_doubts_are_warnings() -> None:
    (typo,) = read(IDLE_TIMOUT="5s").warnings
    assert "SANDGLASS_IDLE_TIMOUT" in typo
    assert "SANDGLASS_IDLE_TIMEOUT" in typo
    assert read(TEST_DOCKER_HOST="x").warnings == ()
    assert Settings.from_env({"SANDGLASSES": "x", "PATH": "/bin"}).warnings == ()
    assert "SANDGLASS_MEMORY" in read(MEMORY="512MiB").warnings[0]
    assert "SANDGLASS_JWT_KEY" in read(HOST="0.0.0.0").warnings[0]
    assert "one tenant" in read(JWT_KEY=SECRET, ALLOW_CONTAINER="yes").warnings[0]


def test_when_plain_containers_are_allowed() -> None:
    assert read(HOST="localhost").container_allowed
    assert not read(HOST="0.0.0.0").container_allowed
    assert not read(HOST="gateway.example.org").container_allowed
    assert not read(JWT_KEY=SECRET).container_allowed
    assert read(JWT_KEY=SECRET, HOST="0.0.0.0", ALLOW_CONTAINER="yes").container_allowed


def test_the_documentation_is_up_to_date() -> None:
    assert DOCS.read_text() == markdown(), "run: python -m gateway.config > docs/configuration.md"


def test_every_setting_can_be_set_and_every_variable_sets_one() -> None:
    assert unreached() == {"warnings", "auth.state"}
    paths = [variable.path for variable in VARIABLES.values()]
    assert len(paths) == len(set(paths)) == sum(len(group) for _, group in TABLE)
    for path in paths:
        member, _, inner = path.partition(".")
        value = getattr(Settings(), member)
        assert not inner or inner in {each.name for each in fields(value)}


def test_describe_tells_values_in_force_and_what_differs() -> None:
    told = {name: (value, note) for name, value, note, _ in describe(read(IDLE_TIMEOUT="90s", BASE_URL="http://x"))}
    assert told["SANDGLASS_IDLE_TIMEOUT"] == ("1m30s", "(default 20m)")
    assert told["SANDGLASS_MAX_LIFETIME"] == ("8h", "")
    assert told["SANDGLASS_BASE_URL"] == ("http://x", "(default none)")
    assert told["SANDGLASS_FRAME_PORT"] == ("8889", "")
    assert told["SANDGLASS_JWT_KEY"][0].startswith("a development key")
    assert told["SANDGLASS_BOOTSTRAP_ENGINE"] == ("auto", "")
    assert len(told) == len(VARIABLES)


def test_defaults_read_back_as_themselves() -> None:
    """What the documentation shows as a default can be set, and then changes nothing."""
    plain = Settings.from_env({})
    for variable in VARIABLES.values():
        default = config._default(variable, Settings())
        if variable.default is None and default:
            assert Settings.from_env({variable.name: default}) == plain, variable.name


@given(st.integers(1, 10**15))
@settings(deadline=None)
def test_sizes_are_shown_as_they_are_read(value: int) -> None:
    assert config_values.size(0, 10**16).parse(config_values.show_size(value)) == value


@given(st.integers(0, 10**8) | st.integers(1, 999).map(lambda ms: ms / 1000))
@settings(deadline=None)
def test_durations_are_shown_as_they_are_read(value: float) -> None:
    shown = config_values.show_duration(value)
    assert config_values.duration(0, 1e9).parse(shown) == pytest.approx(value)


@given(st.dictionaries(st.sampled_from(sorted(VARIABLES)), st.text(max_size=12), max_size=4))
@settings(deadline=None)
def test_any_text_gives_settings_or_a_clear_error(env: dict[str, str]) -> None:
    try:
        Settings.from_env(env)
    except ConfigError as error:
        assert any(name in str(error) for name in env)
