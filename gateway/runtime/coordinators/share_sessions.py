"""The share sessions of members, and the fetches that wait for available records of a partition."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Protocol

from seqgate.gateway.coordinator.share.records import SharePartitionKey


class Peer(Protocol):
    """The connection of a member."""

    def when_gone(self, key: Hashable, callback: Callable[[], None]) -> None:
        """Call back once when the connection has closed, at once if it has already."""

    def forget_gone(self, key: Hashable) -> None:
        """Cancel the callback of this key."""


@dataclass(slots=True, eq=False)
class ShareSession:
    """A member's share session: the partitions that it fetches. Every fetch raises the session epoch."""

    peer: Peer
    """The connection on which the session began; the session ends with it."""
    epoch: int = 1
    places: OrderedDict[tuple[uuid.UUID, int], None] = field(default_factory=OrderedDict)


class ShareWaiters:
    """Calls back the fetches that wait for a partition of a share group."""

    def __init__(self) -> None:
        self._waiters: dict[SharePartitionKey, set[Callable[[], None]]] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def add(self, key: SharePartitionKey, wake: Callable[[], None]) -> None:
        """Call `wake` when members may acquire further offsets of the partition."""
        self._waiters.setdefault(key, set()).add(wake)

    def remove(self, key: SharePartitionKey, wake: Callable[[], None]) -> None:
        """Cancel this callback for the partition."""
        waiters = self._waiters.get(key)
        if waiters is not None:
            waiters.discard(wake)
            if not waiters:
                del self._waiters[key]

    def wake(self, key: SharePartitionKey) -> None:
        """Call back every fetch that waits for a partition."""
        for wake in list(self._waiters.get(key, ())):
            wake()

    def wake_all(self) -> None:
        """Call back every waiting fetch, because the gateway stops."""
        for key in list(self._waiters):
            self.wake(key)
