"""`seqgate backlog`: each group's unread backlog in a topic, its effect on producers, and skipped records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from seqgate.gateway.admin.client import Client
from seqgate.gateway.admin.commands import Output, argument, asks
from seqgate.gateway.admin.completion import topic_names
from seqgate.gateway.admin.operation import LiveGateway, existing_topic
from seqgate.gateway.admin.options import Opened, gateway
from seqgate.gateway.admin.request import PagedRequest, Request
from seqgate.gateway.admin.tables import NONE, Block, Column, Table, count, counted, duration, number, shown

if TYPE_CHECKING:
    from seqgate.gateway.quota.backlog import GroupReader, ProduceGate
    from seqgate.gateway.runtime.backlog import Backlog
    from seqgate.gateway.runtime.partitions.partition import Partition
    from seqgate.gateway.runtime.services import Services

NO_LIMIT: Final = -1
OPEN: Final = "open"
HOLDING: Final = "holding"
REFUSING: Final = "refusing"
ELSEWHERE: Final = "elsewhere"
UNTOLD: Final = "unknown"

# The requests for backlogs, and what `seqgate backlog --json` prints.


class BacklogReader(msgspec.Struct, frozen=True):
    """A group that reads a partition. `offset` is its committed offset, or the start offset of a share group.

    `backlog_bytes` lie between `offset` and the log end. `skipped` counts the records that the group was
    moved over unread since the gateway started, by the setting that skipped them.
    """

    group: str
    is_share: bool
    offset: int
    backlog_bytes: int
    skipped: dict[str, int]


class PartitionBacklog(msgspec.Struct, frozen=True):
    """The backlog of a partition's slowest group; `slowest` is None when no group reads the partition.

    `age_ms` is the age of the first record that the slowest group has not read, None without such a record or
    its timestamp. `exceeded` is the setting that the backlog exceeds. `verdict` says what happens to
    producers: `open`, `holding` or `refusing`, or `elsewhere` where another gateway leads the partition and
    measures its backlog, or `unknown` where the leader can't measure it; `untold` says why. `refused` counts
    batches since the gateway `node_id` started.
    """

    topic: str
    partition: int
    backlog_bytes: int = 0
    age_ms: int | None = None
    slowest: str | None = None
    exceeded: str | None = None
    verdict: str = "open"
    refused: int = 0
    readers: list[BacklogReader] = []
    node_id: int = -1
    untold: str | None = None


class BacklogPage(msgspec.Struct, frozen=True):
    """The settings of a topic, −1 for no limit, and some of its partitions; `complete`: no partition comes
    after them. `waiting_requests` and `waiting_bytes` count requests to all topics.
    """

    topic: str
    quota_bytes: int
    quota_ms: int
    policy: str
    ttl_ms: int
    waiting_requests: int
    waiting_bytes: int
    partitions: list[PartitionBacklog]
    complete: bool


class LimitedTopics(msgspec.Struct, frozen=True):
    """The names of topics, in order."""

    topics: list[str]


class LimitedTopicsRequest(Request[LimitedTopics], tag="backlog.topics"):
    """The topics with a backlog quota or a TTL."""


class BacklogRequest(PagedRequest[BacklogPage], tag="backlog"):
    """The backlogs of a topic, its partitions from the first after `after` on; a page has `limit` groups."""

    asks_every_worker = True
    network_right = "DESCRIBE"
    is_partial = True
    rows = "partitions"
    key = "partition"
    topic: str
    after: int | None = None


def of_leaders(rows: Iterable[PartitionBacklog]) -> list[PartitionBacklog]:
    """Return each partition once, in order: the row of its leader, where the leader's answer is there."""
    found: dict[int, PartitionBacklog] = {}
    for row in rows:
        if found.setdefault(row.partition, row).verdict == ELSEWHERE:
            found[row.partition] = row
    return [found[partition] for partition in sorted(found)]


def joined_backlogs(pages: Sequence[BacklogPage]) -> BacklogPage:
    """Return the pages of several gateways, which begin at one partition, as one that ends where the first of
    them ends.
    """
    ends = [page.partitions[-1].partition for page in pages if not page.complete and page.partitions]
    rows = of_leaders(row for page in pages for row in page.partitions)
    return msgspec.structs.replace(
        pages[0],
        waiting_requests=sum(page.waiting_requests for page in pages),
        waiting_bytes=sum(page.waiting_bytes for page in pages),
        partitions=[row for row in rows if not ends or row.partition <= min(ends)],
        complete=not ends,
    )


# The command.


@asks(gateway)
def backlog(
    opened: Opened[Client],
    topic: str | None = argument(
        "TOPIC",
        "The topic; without it, all topics with a quota or a TTL.",
        autocompletion=topic_names,
        default=None,
    ),
) -> Output:
    """Show each group's unread backlog in a topic, and the effect of quotas.

    \b
    Columns:
      group      reads the partition; * marks the slowest group, which decides about quotas
      offset     the next record that the group will read
      unread     bytes from there to the end of the log
      age        of the first record that the slowest group has not read
      skipped    records that the group was moved over unread since the gateway started
      producers  open, or holding or refusing while a quota is exceeded; and batches refused since the start

    `seqgate help backlog` describes quotas and TTL. Exits with 1 when the gateway can't measure a partition.
    """  # noqa: D301 - \b keeps the lines of the list apart
    with opened as client:
        if topic is None:
            names = client.ask(LimitedTopicsRequest()).topics
            pages = [_asked(client, name) for name in names]
            return Output({"topics": pages}, [*_summary(pages), *_untold(pages)], code=_code(pages))
        page = _asked(client, topic)
    return Output(page, [*_text(page), *_untold([page])], code=_code([page]))


def _asked(client: Client, topic: str) -> BacklogPage:
    """Return the backlog of a topic; of several workers the leader of each partition has measured it."""
    page = client.ask(BacklogRequest(topic))
    return msgspec.structs.replace(page, partitions=of_leaders(page.partitions))


def _untold(pages: Sequence[BacklogPage]) -> list[str]:
    return [
        f"Of {shown(row.topic)}-{row.partition} the backlog is unknown: {row.untold}"
        for page in pages
        for row in page.partitions
        if row.untold is not None
    ]


def _code(pages: Sequence[BacklogPage]) -> int:
    return 1 if _untold(pages) else 0


def _summary(pages: Sequence[BacklogPage]) -> Iterator[Block]:
    """Yield a line for each topic: of its partitions the largest backlog, and the effect on producers."""
    rows = []
    for page in pages:
        largest = max(page.partitions, key=lambda row: row.backlog_bytes)
        closed = [row for row in page.partitions if row.verdict in {HOLDING, REFUSING}]
        unread, slowest = count(largest.backlog_bytes), shown(largest.slowest or NONE)
        producers = f"{closed[0].verdict} in {counted(len(closed), 'partition')}" if closed else OPEN
        rows.append((shown(page.topic), unread, slowest, producers, ", ".join(_limits(page))))
    yield Table(_TOPIC_COLUMNS, rows)
    yield f"{counted(len(pages), 'topic')} with a quota or a TTL. seqgate backlog TOPIC shows each group."


_TOPIC_COLUMNS: Final = (
    Column("topic"),
    Column("most unread", count),
    Column("slowest group"),
    Column("producers"),
    Column("limits"),
)


COLUMNS: Final = (
    Column("parti-\ntion", number),
    Column("group"),
    Column("offset", number),
    Column("unread", count),
    Column("age", duration),
    Column("skipped", count),
    Column("producers"),
)


def _text(page: BacklogPage) -> Iterator[Block]:
    yield f"Topic {shown(page.topic)}: {', '.join(_limits(page)) or 'no quota, no TTL'}."
    yield ""
    yield Table(COLUMNS, [cells for row in page.partitions for cells in _cells(row)])
    if page.waiting_requests:
        waiting = counted(page.waiting_requests, "request")
        yield f"{waiting} to all topics wait ({page.waiting_bytes:,} bytes)."


def _limits(page: BacklogPage) -> list[str]:
    limits = []
    if page.quota_bytes > NO_LIMIT:
        limits.append(f"backlog.quota.bytes {page.quota_bytes:,}")
    if page.quota_ms > NO_LIMIT:
        limits.append(f"backlog.quota.ms {page.quota_ms:,} ({duration(page.quota_ms)})")
    if limits:
        limits.append(f"backlog.quota.policy {page.policy}")
    if page.ttl_ms > NO_LIMIT:
        limits.append(f"message.ttl.ms {page.ttl_ms:,} ({duration(page.ttl_ms)})")
    return limits


def _cells(row: PartitionBacklog) -> list[Sequence[str]]:
    refused = f", {row.refused:,} refused" if row.refused else ""
    producers = row.verdict + (f" ({row.exceeded})" if row.exceeded else "") + refused
    if row.verdict == ELSEWHERE:
        return [(str(row.partition), "another gateway leads it", *[NONE] * 5)]
    if row.untold is not None:
        return [(str(row.partition), UNTOLD, *[NONE] * 5)]
    if not row.readers:
        return [(str(row.partition), "nobody reads it", *[NONE] * 4, producers)]
    return [
        (str(row.partition), *_reader_cells(row, reader), producers if number == 0 else "")
        for number, reader in enumerate(sorted(row.readers, key=lambda reader: reader.offset))
    ]


def _reader_cells(row: PartitionBacklog, reader: BacklogReader) -> tuple[str, ...]:
    is_slowest = reader.group == row.slowest
    age = NONE if row.age_ms is None or not is_slowest else duration(row.age_ms)
    name = shown(reader.group) + ("*" if is_slowest else "") + (" (share)" if reader.is_share else "")
    return name, str(reader.offset), count(reader.backlog_bytes), age, count(sum(reader.skipped.values()))


# In the gateway: its answers on the control socket.


def limited_topics(gateway: LiveGateway, _: LimitedTopicsRequest) -> LimitedTopics:
    """Return the topics with a quota or a TTL."""
    services = gateway.services
    rules = services.upkeep.backlog.rules_of
    limits = {name: rules(name) for name in services.partitions.registry.by_name}
    return LimitedTopics(
        sorted(
            name
            for name, each in limits.items()
            if max(each.quota_bytes, each.quota_ms, each.ttl_ms) > NO_LIMIT
        )
    )


async def backlog_of(gateway: LiveGateway, request: BacklogRequest) -> BacklogPage:
    """Measure the backlogs of one topic; a page ends when it has `limit` groups. Raises ControlError."""
    import asyncio  # noqa: PLC0415 - slow to import

    services = gateway.services
    topic = existing_topic(services.partitions.registry, request.topic)
    backlog = services.upkeep.backlog
    readers = await backlog.readers({request.topic})
    rows: list[PartitionBacklog] = []
    room = request.limit
    node_id = services.node.node_id
    first = 0 if request.after is None else request.after + 1
    index = max(0, first)
    while index < topic.count and room > 0:
        is_here = topic.unknown_or_led_elsewhere(index) is None
        found = readers.get((topic.name, index), []) if is_here else []
        partition = topic.get(index) if found else topic.peek(index)
        if partition is not None:
            rows.append(await _measured(services, partition, found))
        elif found:
            rows.append(_unmeasured(topic.name, index, node_id, "it can't be opened"))
        else:
            verdict = OPEN if is_here else ELSEWHERE
            rows.append(PartitionBacklog(topic.name, index, verdict=verdict, node_id=node_id))
        room -= 1 + len(found)
        index += 1
        # Let requests in between: each partition may read files of its log.
        await asyncio.sleep(0)
    rules = backlog.rules_of(request.topic)
    return BacklogPage(
        topic=request.topic,
        quota_bytes=rules.quota_bytes,
        quota_ms=rules.quota_ms,
        policy=rules.policy,
        ttl_ms=rules.ttl_ms,
        waiting_requests=len(backlog.held),
        waiting_bytes=backlog.held.held_bytes,
        partitions=rows,
        complete=index >= topic.count,
    )


async def _measured(services: Services, partition: Partition, readers: list[GroupReader]) -> PartitionBacklog:
    from seqgate.log import LogError  # noqa: PLC0415 - slow to import

    row = partial(_row, services.upkeep.backlog, partition, readers, services.node.node_id)
    try:
        return await services.partitions.cold_reads.fetched(row)
    except LogError as error:
        return _unmeasured(partition.topic, partition.index, services.node.node_id, str(error))


def _unmeasured(topic: str, partition: int, node_id: int, reason: str) -> PartitionBacklog:
    return PartitionBacklog(topic, partition, verdict=UNTOLD, node_id=node_id, untold=reason)


def _row(
    backlog: Backlog, partition: Partition, readers: list[GroupReader], node_id: int
) -> PartitionBacklog:
    usage = backlog.usage_of(partition, readers)
    rows = [_reader(backlog, partition, reader) for reader in sorted(readers)]
    return PartitionBacklog(
        topic=partition.topic,
        partition=partition.index,
        backlog_bytes=usage.backlog_bytes,
        age_ms=usage.age_ms,
        slowest=None if usage.slowest is None else usage.slowest.group,
        exceeded=usage.exceeded,
        verdict=_verdict(partition.gate),
        refused=0 if partition.gate is None else partition.gate.refused_batches,
        readers=rows,
        node_id=node_id,
    )


def _reader(backlog: Backlog, partition: Partition, reader: GroupReader) -> BacklogReader:
    skipped = backlog.skipped.of(reader.group, (partition.topic, partition.index))
    return BacklogReader(
        group=reader.group,
        is_share=reader.is_share,
        offset=reader.offset,
        backlog_bytes=partition.log.bytes_from(reader.offset),
        skipped={str(limit): records for limit, records in skipped.records.items()},
    )


def _verdict(gate: ProduceGate | None) -> str:
    if gate is None or not gate.is_closed:
        return OPEN
    return HOLDING if gate.holds else REFUSING
