"""A store whose calls wait until the test says what becomes of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from seqgate.gateway.cluster.objects.objects import AlreadyThere, Buffer, Missing, StoreFailed
from seqgate.gateway.cluster.wal.wal_object import object_key


class HeldCall:
    """A call that waits. `seq` is the place of its object."""

    def __init__(
        self, store: HeldObjects, name: str, key: str, content: bytes | None, size_bytes: int
    ) -> None:
        self.name = name
        self.key = key
        self.seq = int(key[-20:])
        self.content = content
        self._size_bytes = size_bytes
        self._store = store
        self.answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def take_effect(self) -> None:
        """Let the store create the object, unless the key has one."""
        assert self.content is not None
        self._store.stored.setdefault(self.key, self.content)

    def lose(self) -> None:
        """Let the call fail for its caller."""
        self.answered.set_exception(StoreFailed("503 Slow Down"))

    def answer(self) -> None:
        """Carry the call out and answer it."""
        found = self._store.stored.get(self.key)
        if self.content is None:
            if found is None:
                self.answered.set_exception(Missing(self.key))
            else:
                self.answered.set_result(found[-self._size_bytes :])
        elif found is not None:
            self.answered.set_exception(AlreadyThere(self.key))
        else:
            self.take_effect()
            self.answered.set_result(b"")


class HeldObjects:
    """The part of an object store that a session needs."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}
        self.calls: list[HeldCall] = []
        """The calls that the test has not taken yet, in order."""

    async def create(self, key: str, content: bytes | Sequence[Buffer]) -> None:
        joined = content if isinstance(content, bytes) else b"".join(content)
        await self._call("create", key, joined, 0)

    async def get_end(self, key: str, size_bytes: int) -> bytes:
        return await self._call("look", key, None, size_bytes)

    async def _call(self, name: str, key: str, content: bytes | None, size_bytes: int) -> bytes:
        call = HeldCall(self, name, key, content, size_bytes)
        self.calls.append(call)
        return await call.answered

    async def next(self, name: str, seq: int) -> HeldCall:
        """Take the next call with this name for this object."""
        for _ in range(1000):
            for call in self.calls:
                if (call.name, call.seq) == (name, seq):
                    self.calls.remove(call)
                    return call
            await asyncio.sleep(0.01)
        raise AssertionError(
            f"no call to {name} {seq}; there are {[(call.name, call.seq) for call in self.calls]}"
        )

    def put(self, node_id: int, session: int, seq: int, content: bytes) -> None:
        """Store an object as another gateway does."""
        self.stored[object_key(node_id, session, seq)] = content
