"""What Jupyter calls "sessions": which notebook path uses which kernel. In memory, per user, bounded.

Not a Sandglass session. Nothing is lost with it: a client that finds no entry makes a new one for the same path.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from ..domain.model import Principal

MAX_PER_USER = 256
MAX_USERS = 4096

Owner = tuple[str, str]


@dataclass(slots=True)
class Notebook:
    """``path``, ``name`` and ``kind`` are the client's own words, handed back as they came."""

    notebook_id: str
    path: str
    name: str
    kind: str
    kernel_id: str


@dataclass(slots=True)
class _Turn:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Notebooks:
    """The oldest entry of a user, and the user not seen for longest, make room for new ones."""

    def __init__(self) -> None:
        self._users: OrderedDict[Owner, OrderedDict[str, Notebook]] = OrderedDict()
        self._turns: dict[tuple[Owner, str], _Turn] = {}

    @asynccontextmanager
    async def turn(self, owner: Principal, path: str) -> AsyncIterator[None]:
        """One at a time for each path; nothing is kept once nobody waits."""
        key = (_key(owner), path)
        turn = self._turns.setdefault(key, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if turn.users == 0:
                del self._turns[key]

    def of(self, owner: Principal) -> list[Notebook]:
        return list(self._users.get(_key(owner), {}).values())

    def get(self, owner: Principal, notebook_id: str) -> Notebook | None:
        return self._users.get(_key(owner), OrderedDict()).get(notebook_id)

    def by_path(self, owner: Principal, path: str) -> Notebook | None:
        return next((n for n in self.of(owner) if n.path == path), None)

    def add(self, owner: Principal, *, path: str, name: str, kind: str, kernel_id: str) -> Notebook:
        notebook = Notebook(str(uuid.uuid4()), path, name, kind, kernel_id)
        mine = self._users.setdefault(_key(owner), OrderedDict())
        self._users.move_to_end(_key(owner))
        mine[notebook.notebook_id] = notebook
        while len(mine) > MAX_PER_USER:
            mine.popitem(last=False)
        while len(self._users) > MAX_USERS:
            self._users.popitem(last=False)
        return notebook

    def remove(self, owner: Principal, notebook_id: str) -> None:
        mine = self._users.get(_key(owner))
        if mine is not None:
            mine.pop(notebook_id, None)
            if not mine:
                del self._users[_key(owner)]

    def keep_only(self, owner: Principal, kernel_ids: set[str]) -> None:
        """Forget the entries whose kernel is no longer there."""
        for notebook in self.of(owner):
            if notebook.kernel_id not in kernel_ids:
                self.remove(owner, notebook.notebook_id)

    def __len__(self) -> int:
        return sum(len(mine) for mine in self._users.values())


def _key(owner: Principal) -> Owner:
    return (owner.tenant, owner.user)
