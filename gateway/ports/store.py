"""Objects by key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol


class ObjectWriter(Protocol):
    """An upload in progress; nothing is visible under the key before ``commit``."""

    async def write(self, data: bytes) -> None: ...
    async def commit(self) -> str:
        """Make it visible, after it is durable; returns its SHA-256 in hex."""
        ...

    async def abort(self) -> None: ...


class ObjectStore(Protocol):
    """Keys are slash-separated, of ``[A-Za-z0-9._-]`` segments. Raises StoreUnavailable, NotFound.

    ``errors``: how many calls failed because it did not serve, for the operator's figures.
    """

    @property
    def errors(self) -> int: ...

    async def writer(self, key: str) -> ObjectWriter: ...
    def read(self, key: str) -> AsyncIterator[bytes]:
        """The object's bytes in chunks. Raises NotFound at the first step when there is none.

        Where the store can tell that they are not those that were stored it raises Conflict, before the last of them.
        """
        ...

    async def stat(self, key: str) -> int:
        """Its size in bytes. Raises NotFound."""
        ...

    async def delete(self, key: str) -> None:
        """Also fine when there is none."""
        ...

    def list(self, prefix: str) -> AsyncIterator[str]: ...
    async def check(self) -> None:
        """Raise StoreUnavailable when it would not serve."""
        ...
