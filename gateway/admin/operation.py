"""The type of an operation: its request, and the functions that answer it from a gateway or a data directory."""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from seqgate.gateway.admin.pids.stopped import BlockSource
from seqgate.gateway.admin.request import Request
from seqgate.gateway.admin.stopped_gateway import StoppedGateway
from seqgate.gateway.admin.sweep.sweeps import Sweeps
from seqgate.gateway.admin.traffic import Traffic
from seqgate.gateway.runtime.services import Services

Q = TypeVar("Q", bound=Request[Any])
T = TypeVar("T")
K = TypeVar("K", bound=Any)


def _nothing(_: Request[Any]) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Operation(Generic[Q]):
    """An operation of the gateway: its request, which names the operation and the answer, and the functions
    that answer.

    Both functions raise ControlError. `stopped` answers from a data directory that no gateway has open, with
    all rows in one page; None: only a running gateway can answer. `changes` returns whether a request changes
    something, so that the audit log names it. `is_partial`: in a cluster the answer lacks what other gateways
    lead or coordinate, and a note says so.
    """

    request: type[Q]
    run: Callable[[LiveGateway, Q], Awaitable[Any] | Any]
    stopped: Callable[[StoppedGateway, Q], Any] | None = None
    changes: Callable[[Q], bool] = _nothing
    is_partial: bool = False


def page(found: Iterable[T], after: K | None, limit: int, key: Callable[[T], K]) -> tuple[list[T], bool]:
    """Return the first `limit` items whose key is above `after`, sorted by key, and whether these are the
    last ones.
    """
    wanted = found if after is None else (item for item in found if key(item) > after)
    first = heapq.nsmallest(limit + 1, wanted, key=key)
    return first[:limit], len(first) <= limit


# The running gateway as operations see it.


@dataclass(slots=True)
class LiveGateway:
    """A running gateway: its services, the store of its producer-id blocks, and its listeners' counters."""

    services: Services
    blocks: BlockSource
    traffic: Callable[[], Traffic]
    started_at_ms: int
    sweeps: Sweeps = field(init=False)

    def __post_init__(self) -> None:
        self.sweeps = Sweeps(self.services)
