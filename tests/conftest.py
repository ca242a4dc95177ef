"""What several suites share: an S3 server, in a process of its own, started when a test first asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.s3_world import serve


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """Its ``host:port``."""
    with serve() as endpoint:
        yield endpoint
