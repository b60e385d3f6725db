"""Asks for producers: the gateway's metrics listener where there is one, otherwise the cluster over the Kafka protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.admin.producers.messages import ListProducersRequest, ProducerCounters, ProducerRow
from gateway.admin.producers.remote import list_producers
from gateway.admin.request import ControlError
from gateway.console.asking.connections import Cache
from gateway.console.asking.topics import topic_lines
from gateway.console.page import Visit

Cursor = tuple[str, int, int]
"""Topic, partition and producer id of the row before the first one of a page."""

KEPT_S: Final = 30.0
"""The longest time for which a page counts; one that came fast counts for a fraction of a second."""
MOST_PARTITIONS: Final = 500
"""Partitions that are asked together over the Kafka protocol; with more of them the person must choose a topic."""


@dataclass(frozen=True, slots=True)
class Told:
    """Some producers. `trouble` says why the metrics listener did not tell them, None where it did or does not exist."""

    rows: Sequence[ProducerRow]
    complete: bool
    counters: ProducerCounters | None = None
    trouble: str | None = None


_pages: Final[Cache[Told]] = Cache(KEPT_S)


def producers(
    visit: Visit, topic: str | None, partition: int | None, after: Cursor | None, limit: int
) -> Told:
    """Return at most `limit` producers after a cursor, by topic, partition and id. Raises ControlError.

    The page, its feed and the sampler share an answer where the answer took long.
    """
    key = (visit.console.options, topic, partition, after, limit)
    return _pages.get(visit.security, key, lambda: _asked(visit, topic, partition, after, limit))


def _asked(visit: Visit, topic: str | None, partition: int | None, after: Cursor | None, limit: int) -> Told:
    if partition is not None and topic is None:
        raise ControlError(f"choose the topic of partition {partition}")
    trouble = None
    if visit.has_metrics:
        try:
            page = visit.ask_gateway(ListProducersRequest(topic, partition, after, limit=limit))
        except ControlError as error:
            trouble = str(error)
        else:
            return Told(page.producers, page.complete, page.counters)
    rows = _over_kafka(visit, topic, partition)
    later = [row for row in rows if after is None or place_of(row) > after]
    return Told(later[:limit], len(later) <= limit, None, trouble)


def place_of(row: ProducerRow) -> Cursor:
    """Return the place of a row in the list."""
    return row.topic, row.partition, row.producer_id


def _over_kafka(visit: Visit, topic: str | None, partition: int | None) -> list[ProducerRow]:
    with visit.cluster() as cluster:
        if topic is None:
            partitions = sum(line.partitions for line in topic_lines(cluster) if not line.is_internal)
            if partitions > MOST_PARTITIONS:
                raise ControlError(
                    f"the cluster has {partitions:,} partitions, and {MOST_PARTITIONS} are asked together; choose a topic"
                )
        return list_producers(cluster, ListProducersRequest(topic, partition)).producers
