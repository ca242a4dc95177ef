"""Which store is taken, and what ``sandglass doctor`` says of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway import doctor
from gateway.backends.filesystem_store import FilesystemStore
from gateway.backends.s3_settings import S3Settings
from gateway.backends.s3_store import S3Store
from gateway.clock import SystemClock
from gateway.config import Settings
from gateway.errors import StoreUnavailable
from gateway.main import Server, store_of
from tests import s3_world

SECRET = s3_world.SECRET.decode()


def env(state: Path, given: S3Settings) -> Settings:
    return Settings.from_env(
        {
            "SANDGLASS_STATE": str(state),
            "SANDGLASS_S3_ENDPOINT": given.endpoint,
            "SANDGLASS_S3_BUCKET": given.bucket,
            "SANDGLASS_S3_ACCESS_KEY": given.access_key.decode(),
            "SANDGLASS_S3_SECRET_KEY": SECRET,
            "SANDGLASS_S3_SECURE": "no",
            "SANDGLASS_S3_CREATE_BUCKET": "yes",
        }
    )


async def test_a_directory_is_looked_at_and_not_made(tmp_path: Path) -> None:
    settings = Settings.from_env({"SANDGLASS_STATE": str(tmp_path / "state")})
    (finding,) = await doctor._store(settings)
    assert "a directory" in finding.found and not finding.mend
    assert not (tmp_path / "state").exists()
    store = store_of(settings, SystemClock())
    assert isinstance(store, FilesystemStore)
    await store.open()
    await store.close()
    (finding,) = await doctor._store(settings)
    assert finding.found.endswith("serves")


async def test_a_bucket_is_looked_at_and_not_made(tmp_path: Path, s3_server: str) -> None:
    settings = env(tmp_path, s3_world.settings(s3_server))
    (finding,) = await doctor._store(settings)
    assert settings.s3.bucket in finding.found and settings.s3.endpoint in finding.found
    assert "no such bucket" in finding.mend
    store = store_of(settings, SystemClock())
    assert isinstance(store, S3Store)
    await store.open()
    await store.close()
    (finding,) = await doctor._store(settings)
    assert finding.found.endswith("serves") and not finding.mend
    assert SECRET not in repr(finding)


async def test_a_gateway_does_not_start_without_its_bucket(tmp_path: Path, s3_server: str) -> None:
    settings = env(tmp_path, s3_world.settings(s3_server))
    server = Server(replace(settings, s3=replace(settings.s3, create_bucket=False)), docker_host="", image="")
    try:
        with pytest.raises(StoreUnavailable, match="SANDGLASS_S3_CREATE_BUCKET=yes"):
            await server.start()
    finally:
        await server.stop(lambda line: None)


async def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    (finding,) = await doctor._store(env(tmp_path, s3_world.settings("127.0.0.1:9")))
    assert "cannot be reached" in finding.mend
