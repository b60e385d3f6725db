"""The type of an operation: its request, and the functions that answer it from a gateway or a data directory.

Below it is what operations share: the gateway as they see it, the topics and partitions that a request names,
and the errors of coordinators as sentences. Commands import this module before they run, so it imports
nothing of the gateway.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from seqgate.gateway.admin.request import ControlError, Elsewhere, Request

if TYPE_CHECKING:
    from seqgate.gateway.admin.pids import BlockSource
    from seqgate.gateway.admin.restart.live import Restarts
    from seqgate.gateway.admin.server import Traffic
    from seqgate.gateway.admin.sweep import Sweeps
    from seqgate.gateway.config import Config
    from seqgate.gateway.runtime.partitions.partition import Partition
    from seqgate.gateway.runtime.partitions.registry import Partitions, TopicPartitions
    from seqgate.gateway.runtime.services import Services

Q = TypeVar("Q", bound=Request[Any])


class ControlOperation(msgspec.Struct, Generic[Q], frozen=True):
    """An operation of the gateway: its request, which names the operation and the answer, and the functions
    that answer.

    Both functions raise ControlError. `stopped` answers from a data directory that no gateway has open, with
    all rows in one page; None: only a running gateway can answer. `changes` says whether a request changes
    something, so that the audit log names it. `timeout_s`: the time for the operation, where that is
    not the time for all others.
    """

    request: type[Q]
    run: Callable[[LiveGateway, Q], Awaitable[Any] | Any]
    stopped: Callable[[StoppedGateway, Q], Any] | None = None
    changes: Callable[[Q], bool] | bool = False
    timeout_s: float | None = None


# The gateway as operations see it, running or stopped.


class StoppedGateway(NamedTuple):
    """A data directory that no gateway has open, the settings of its gateway, and the time."""

    data_dir: Path
    config: Config
    now_ms: int


class LiveGateway(msgspec.Struct, dict=True):
    """A running gateway: its services, and its listeners' counters."""

    services: Services
    traffic: Callable[[], Traffic]
    started_at_ms: int
    uptime_s: Callable[[], float]
    """Returns the time since the start, however the clock was set meanwhile."""
    metrics: Callable[[], Awaitable[str]] | None = None
    """Returns the metrics in Prometheus's text format."""
    restarts: Restarts | None = None
    """Restarts the process; None for a gateway inside of another program."""

    @cached_property
    def blocks(self) -> BlockSource:
        """The store of the gateway's producer-id blocks, opened when it is first needed."""
        from seqgate.gateway.admin.pids import gateway_source  # noqa: PLC0415 - slow to import

        return gateway_source(self.services)

    async def close(self) -> None:
        """Close the store of producer-id blocks, if it was opened."""
        if "blocks" in self.__dict__ and self.blocks.close is not None:
            await self.blocks.close()

    @cached_property
    def sweeps(self) -> Sweeps:
        """The running sweep, and the findings of the last sweeps."""
        from seqgate.gateway.admin.sweep import Sweeps  # noqa: PLC0415 - slow to import

        return Sweeps(self.services)


# The topics and partitions that a request names.


def existing_topic(partitions: Partitions, name: str, *indexes: int | None) -> TopicPartitions:
    """Return a topic that has all partitions of `indexes`; None names no partition. Raises ControlError."""
    topic = partitions.by_name.get(name)
    if topic is None:
        raise ControlError(f"there is no topic {name}")
    for index in indexes:
        if index is not None and not topic.has(index):
            raise ControlError(f"topic {name} has no partition {index}")
    return topic


def check_led_here(services: Services, topic: str, index: int) -> None:
    """Refuse a partition that another gateway leads. Raises Elsewhere."""
    from kio.schema.errors import ErrorCode  # noqa: PLC0415 - slow to import

    from seqgate.gateway.runtime.topics.brokers import NO_LEADER  # noqa: PLC0415

    found = services.partitions.registry.by_name.get(topic)
    if found is None or found.unknown_or_led_elsewhere(index) is not ErrorCode.not_leader_or_follower:
        return
    leader = services.node.brokers.leader_in(topic, index)
    where = "no live gateway" if leader is None or leader[0] == NO_LEADER else f"broker {leader[0]}"
    raise Elsewhere(
        f"{topic}-{index} is led by {where}, not by this gateway; ask that one, or name the cluster with "
        "--bootstrap where the command has it"
    )


def partitions_after(
    topics: list[TopicPartitions],
    list_partitions: Callable[[TopicPartitions], Iterator[Partition]],
    index: int | None,
    after: tuple[str, int, int] | None,
) -> Iterator[Partition]:
    """Yield the partitions of topics, or those with one index, beginning with the last one of the previous
    page. `after` is topic, partition and producer id of the last row of the previous page.
    """
    for topic in topics:
        for partition in list_partitions(topic):
            is_before = after is not None and (topic.name, partition.index) < after[:2]
            if not is_before and index in {None, partition.index}:
                yield partition


# The coordinators of groups and transactions.


@contextlib.contextmanager
def as_control_error(what: str, topic: str) -> Iterator[None]:
    """Turn Unavailable into ControlError; the coordinator of `what` stores its state in `topic`."""
    from seqgate.gateway.runtime.coordinators.shards import Unavailable  # noqa: PLC0415 - slow to import

    try:
        yield
    except Unavailable as error:
        raise ControlError(
            f"the coordinator of {what} can't answer now ({error.error_code.name}); "
            f"`seqgate status` shows whether a partition of {topic} is offline"
        ) from error
