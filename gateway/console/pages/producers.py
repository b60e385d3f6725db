"""The producers of partitions, what happened to their batches over time, and the producer names of topics."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from seqgate.gateway.admin.names import NamesRequest, Position
from seqgate.gateway.admin.pids import FindOwnerRequest
from seqgate.gateway.admin.producers import (
    ListProducersRequest,
    ProducerCounters,
    ProducerRow,
    list_producers_remote,
)
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.tables import shown
from seqgate.gateway.admin.transactions.ids import (
    ListTransactionsRequest,
    TransactionRow,
    list_transactions_remote,
)
from seqgate.gateway.admin.verdicts import ListVerdictsRequest, VerdictRow
from seqgate.gateway.console.answer import Data, PageAnswer, View
from seqgate.gateway.console.asking.connections import Cache
from seqgate.gateway.console.asking.topics import topic_lines, topic_settings
from seqgate.gateway.console.metrics import rates
from seqgate.gateway.console.metrics.producer_events import judged, key_of
from seqgate.gateway.console.page import Feed, Get, Page, PageGroup, Visit
from seqgate.gateway.security.principals import ClientIdentity


def all_producers(visit: Visit) -> PageAnswer:
    """Show a page of the producers, and the newest batches that were not stored."""
    topic, partition = visit.place()
    cursor = cursor_of(visit)
    told = producers(visit, topic, partition, cursor, ROWS)
    following = None if told.complete or not told.rows else place_of(told.rows[-1])
    query: dict[str, Any] = {"topic": topic, "partition": partition}
    return View(
        "producers.html",
        {
            "rows": [(key_of(*place_of(row)), row) for row in sorted(told.rows, key=_is_idle)],
            "counters": told.counters,
            "trouble": told.trouble,
            "topic": topic,
            "partition": partition,
            "query": query,
            "begins": cursor is not None,
            "from_id": visit.optional_number("from_id"),
            "after": _cursor_fields(cursor),
            "next": None if following is None else {**query, **_cursor_fields(following)},
            **table_of(visit, topic, partition),
        },
    )


IDLE_MS: Final = 5 * 60_000
"""The time without a batch after which a producer's strip is empty."""


def _is_idle(row: ProducerRow) -> bool:
    """Return whether a producer has sent nothing lately: a page has those last."""
    return row.age_ms is not None and row.age_ms > IDLE_MS


def _cursor_fields(cursor: tuple[str, int, int] | None) -> dict[str, Any]:
    if cursor is None:
        return {}
    return {"after_topic": cursor[0], "after_partition": cursor[1], "after_id": cursor[2]}


# Asks for producers: the gateway's metrics listener where there is one, otherwise the cluster over the Kafka
# protocol.

Cursor = tuple[str, int, int]
"""Topic, partition and producer id of the row before the first one of a page."""

KEPT_S: Final = 30.0
"""The longest time for which a page counts; one that came fast counts for a fraction of a second."""
MOST_PARTITIONS: Final = 500
"""Partitions that are asked together over the Kafka protocol; for more, choose a topic."""


@dataclass(frozen=True, slots=True)
class Told:
    """Some producers. `trouble` says why an existing metrics listener did not tell them."""

    rows: Sequence[ProducerRow]
    complete: bool
    counters: ProducerCounters | None = None
    trouble: str | None = None


_pages: Final[Cache[Told]] = Cache(KEPT_S)


def producers(
    visit: Visit, topic: str | None, partition: int | None, after: Cursor | None, limit: int
) -> Told:
    """Return at most `limit` producers after a cursor, by topic, partition and id. Raises ControlError. The
    page, its feed and the sampler share an answer where the answer took long.
    """
    key = (visit.console.options, topic, partition, after, limit)
    return _pages.get(visit.security, key, lambda: _asked(visit, topic, partition, after, limit))


def _asked(visit: Visit, topic: str | None, partition: int | None, after: Cursor | None, limit: int) -> Told:
    page, trouble = visit.told(ListProducersRequest(topic, partition, after, limit=limit))
    if page is not None:
        return Told(page.producers, page.complete, page.counters)
    rows = _over_kafka(visit, topic, partition)
    later = [row for row in rows if after is None or place_of(row) > after]
    return Told(later[:limit], len(later) <= limit, None, trouble)


def place_of(row: ProducerRow) -> Cursor:
    return row.topic, row.partition, row.producer_id


def _over_kafka(visit: Visit, topic: str | None, partition: int | None) -> list[ProducerRow]:
    with visit.cluster() as cluster:
        if topic is None:
            partitions = sum(line.partitions for line in topic_lines(cluster) if not line.is_internal)
            if partitions > MOST_PARTITIONS:
                raise ControlError(
                    f"the cluster has {partitions:,} partitions, and {MOST_PARTITIONS} are asked together; "
                    "choose a topic"
                )
        return list_producers_remote(cluster, ListProducersRequest(topic, partition)).producers


# The feed of the strips: what the producers of a page wrote, repeated and were refused in the newest minutes.

ROWS: Final = 50
STRIPS_MS: Final = 20 * 60_000
"""The time that a strip may show."""
MOST_VERDICTS: Final = 2_000


def strips(visit: Visit) -> PageAnswer:
    """Return the events after a time, and after a number of verdicts, of the producers of one page."""
    topic, partition = visit.place()
    producer_id = visit.optional_number("id")
    cursor, limit = cursor_of(visit), ROWS
    if topic is not None and partition is not None and producer_id is not None:
        cursor, limit = (topic, partition, producer_id - 1), 1
    rows: dict[str, ProducerRow | None] = {
        key_of(*place_of(row)): row for row in producers(visit, topic, partition, cursor, limit).rows
    }
    if topic is not None and partition is not None and producer_id is not None:
        key = key_of(topic, partition, producer_id)
        rows = {key: rows.get(key)}
    now_ms = time.time_ns() // 1_000_000
    seen = visit.console.sampler.producers
    seen.see(now_ms, [row for row in rows.values() if row is not None])
    sampled, events = seen.after(max(visit.number("after", 0), now_ms - STRIPS_MS), rows.keys())
    number = visit.number("number", 0)
    request = ListVerdictsRequest(topic, partition, producer_id, number, limit=MOST_VERDICTS)
    told, error = visit.told(request)
    found = [] if told is None else told.verdicts
    for row in found:
        key = key_of(row.topic, row.partition, row.producer_id)
        if key in events:
            events[key].append(judged(row))
    return Data(
        {
            "now": now_ms,
            "since": {key: seen.since_ms(key) for key in rows},
            "sampled": sampled,
            "number": max([number, *(row.number for row in found)]),
            "events": {key: sorted(of_key) for key, of_key in events.items() if of_key},
            "rows": {key: _shown(row) for key, row in rows.items() if row is not None},
            "error": error,
        }
    )


def _shown(row: ProducerRow) -> dict[str, Any]:
    return {
        "epoch": row.producer_epoch,
        "sequence": row.last_sequence,
        "offset": row.last_offset,
        "age_ms": row.age_ms,
        "batches": row.retained_batches,
        "client": _client_text(row.client),
        "transaction": row.current_txn_start_offset if row.current_txn_start_offset >= 0 else None,
    }


def cursor_of(visit: Visit) -> Cursor | None:
    """Return the place after which the page begins: after_topic, _partition and _id, or before from_id."""
    topic, partition = visit.text("topic"), visit.optional_number("partition")
    first = visit.optional_number("from_id")
    if first is not None and topic and partition is not None:
        return topic, partition, first - 1
    producer_id = visit.optional_number("after_id", -1)
    if producer_id is None:
        return None
    return visit.text("after_topic") or topic, visit.number("after_partition", partition or 0), producer_id


# One producer in one partition: what happened to its batches, its block of ids, its transaction and its
# verdicts.


def one(visit: Visit) -> PageAnswer:
    topic = visit.text("topic")
    if not topic:
        raise ControlError("the address must name a topic; choose a producer from the list of producers")
    partition, producer_id = visit.number("partition", 0), visit.number("id", 0)
    told = producers(visit, topic, partition, (topic, partition, producer_id - 1), 1)
    row: ProducerRow | None = next((row for row in told.rows if row.producer_id == producer_id), None)
    owner, owner_trouble = visit.told(FindOwnerRequest(producer_id))
    transactions, transactions_trouble = _transactions(visit, producer_id)
    return View(
        "producers_one.html",
        {
            "topic": topic,
            "partition": partition,
            "producer_id": producer_id,
            "key": key_of(topic, partition, producer_id),
            "row": row,
            "trouble": told.trouble,
            "owner": owner,
            "owner_trouble": owner_trouble,
            "transactions": transactions,
            "transactions_trouble": transactions_trouble,
            **table_of(visit, topic, partition, producer_id),
        },
    )


def _transactions(visit: Visit, producer_id: int) -> tuple[list[TransactionRow], str | None]:
    """Return the transactional ids that have this producer id: one, or none."""
    try:
        with visit.cluster() as cluster:
            return list_transactions_remote(
                cluster, ListTransactionsRequest(producer_ids=[producer_id])
            ).transactions, None
    except ControlError as error:
        return [], str(error)


# The newest batches that the gateway did not store.

VERDICT_ROWS: Final = 100


def table_of(
    visit: Visit, topic: str | None, partition: int | None, producer_id: int | None = None
) -> dict[str, Any]:
    """Return the values of templates/parts/verdicts.html; `verdicts` is None if no listener answers."""
    source = {"topic": topic, "partition": partition, "id": producer_id}
    found, trouble = visit.told(ListVerdictsRequest(topic, partition, producer_id, limit=VERDICT_ROWS))
    rows = None if found is None else [shown_verdict(row) for row in found.verdicts]
    return {"verdicts": rows, "verdicts_trouble": trouble, "verdicts_source": source}


def shown_verdict(row: VerdictRow) -> dict[str, Any]:
    reason = reason_of(row)
    is_one = row.base_sequence == row.last_sequence
    sequences = str(row.base_sequence) if is_one else f"{row.base_sequence}–{row.last_sequence}"
    return {
        "number": row.number,
        "time_ms": row.time_ms,
        "topic": row.topic,
        "partition": row.partition,
        "producer_id": str(row.producer_id) if row.producer_id >= 0 else None,
        "epoch": row.producer_epoch if row.producer_epoch >= 0 else None,
        "sequences": sequences if row.base_sequence >= 0 else "–",
        "offset": row.base_offset if row.base_offset >= 0 else None,
        "outcome": row.outcome,
        "client": _client_text(row.client),
        "message": row.message,
        "short": reason.short,
        "meaning": reason.meaning,
        "advice": reason.advice,
    }


def _client_text(client: ClientIdentity | None) -> str:
    return "–" if client is None else shown(str(client), 300)


def newer_verdicts(visit: Visit) -> PageAnswer:
    """Return the verdicts after a number, for the island that adds them to the table."""
    topic, partition = visit.place()
    request = ListVerdictsRequest(
        topic, partition, visit.optional_number("id"), visit.number("number", 0), limit=VERDICT_ROWS
    )
    return Data({"verdicts": [shown_verdict(row) for row in visit.ask_gateway(request).verdicts]})


# The meaning of each outcome of a batch that was not stored, and the advice for it. Pure.


class Reason(NamedTuple):
    """A few words about an outcome, what it means, and what to do."""

    short: str
    meaning: str
    advice: str


_FENCED: Final = Reason(
    "a newer producer has fenced its producer",
    "The partition knows a newer epoch of this producer: another producer with its transactional id has "
    "taken over, or an abort has fenced it.",
    "Check that no two running producers use the same transactional.id; then restart this one if it is the "
    "one you want.",
)
_REASONS: Final = {
    "duplicate": Reason(
        "it was stored before",
        "The producer sent a batch again that is stored already. The gateway answered with the offset of the "
        "original.",
        "Nothing needs to be done: no record is lost, and none is stored twice.",
    ),
    "OUT_OF_ORDER_SEQUENCE_NUMBER": Reason(
        "a batch before it is missing",
        "The first sequence does not follow the producer's last one: a batch in between is missing.",
        "The client sends the missing batch again by itself. If the error lasts, the client has lost a "
        "batch: restart the producer.",
    ),
    "DUPLICATE_SEQUENCE_NUMBER": Reason(
        "it comes too late to be recognized",
        "The batch is older than the batches that the gateway keeps of this producer.",
        "Set max.in.flight.requests.per.connection to 5 or less. The records may be stored already.",
    ),
    "INVALID_PRODUCER_EPOCH": _FENCED,
    "PRODUCER_FENCED": _FENCED,
    "UNKNOWN_PRODUCER_ID": Reason(
        "the partition does not track the producer",
        "The partition does not track this producer: the producer was idle for too long, or its records "
        "were deleted.",
        "The client begins a new sequence by itself. Raise producer.id.expiration.ms if producers pause for "
        "longer.",
    ),
    "INVALID_TXN_STATE": Reason(
        "its transaction is not open here",
        "The batch belongs to a transaction that is not open in this partition.",
        "Begin a transaction before producing. An aborted transaction must be begun again.",
    ),
    "INVALID_PRODUCER_ID_MAPPING": Reason(
        "the transactional id has another producer id",
        "The transactional id belongs to another producer id now.",
        "Restart the producer, so that it calls initTransactions again.",
    ),
    "TRANSACTION_ABORTABLE": Reason(
        "its transaction must be aborted",
        "The transaction can't continue.",
        "The client must abort the transaction and begin it again.",
    ),
    "CONCURRENT_TRANSACTIONS": Reason(
        "the last transaction is still ending",
        "The previous transaction of this producer is still ending.",
        "The client tries again by itself.",
    ),
    "NOT_ENOUGH_REPLICAS": Reason(
        "there is no room for it now",
        "The gateway had no room for the batch: a backlog quota, the disk, the bucket or a limit of names or "
        "delayed records.",
        "The client tries again by itself. Read the message, and free room or raise the limit.",
    ),
    "NOT_LEADER_OR_FOLLOWER": Reason(
        "another broker leads the partition",
        "Another broker leads the partition now.",
        "The client finds the new leader by itself.",
    ),
    "CORRUPT_MESSAGE": Reason(
        "its checksum is wrong",
        "The batch was damaged on its way: its checksum is wrong.",
        "The client tries again by itself. If the error lasts, check the network and the client library.",
    ),
    "MESSAGE_TOO_LARGE": Reason(
        "it is too large",
        "The batch is larger than max.message.bytes of the topic.",
        "Make batches smaller with batch.size and compression.type, or raise max.message.bytes.",
    ),
    "INVALID_RECORD": Reason(
        "a record breaks a rule of the topic",
        "A record breaks a rule of the topic, such as a missing key, a delay that is too long, or headers "
        "for deduplication.",
        "Read the message, and correct what the producer sends. The client does not try again.",
    ),
    "INVALID_TIMESTAMP": Reason(
        "a record's time is too far away",
        "A record's time is too far from the gateway's clock.",
        "Correct the clock of the producer, or change message.timestamp.before.max.ms of the topic.",
    ),
    "UNSUPPORTED_COMPRESSION_TYPE": Reason(
        "its compression is not known",
        "The broker can't decode the compression.",
        "Choose another compression.type of the producer.",
    ),
    "TOPIC_AUTHORIZATION_FAILED": Reason(
        "the user may not write to the topic",
        "The user may not write to the topic.",
        "Give the user WRITE on the topic: seqgate acls add.",
    ),
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": Reason(
        "the user may not use the transactional id",
        "The user may not use the transactional id.",
        "Give the user WRITE on the transactional id: seqgate acls add.",
    ),
    "KAFKA_STORAGE_ERROR": Reason(
        "the partition can't be written",
        "The partition can't be written.",
        "Open the overview: it says what is wrong with the partition.",
    ),
    "UNKNOWN_TOPIC_OR_PARTITION": Reason(
        "the partition does not exist",
        "The topic or partition does not exist.",
        "Create the topic, or correct its name in the producer.",
    ),
}
_OTHER: Final = Reason(
    "the broker refused it", "The broker refused the batch.", "Read the message that the client got."
)


def reason_of(row: VerdictRow) -> Reason:
    return _REASONS.get(row.outcome, _OTHER)


# The producer names that topics with deduplication track.

NAMES_ROWS: Final = 50
SETTING: Final = "message.deduplication.enable"


def names(visit: Visit) -> PageAnswer:
    """Show a page of the names, and the topics that track names."""
    with visit.cluster() as cluster:
        settings = topic_settings(cluster, (SETTING,))
    topics = sorted(topic for topic, values in settings.items() if values.get(SETTING) == "true")
    topic, partition = visit.place()
    name = visit.text("name")
    values: dict[str, Any] = {
        "topics": topics,
        "topic": topic,
        "partition": partition,
        "name": name,
        "query": {"topic": topic, "partition": partition},
        "begins": bool(visit.text("begin_topic")),
    }
    if not visit.has_metrics:
        return View("names.html", {**values, "found": None, "next": None})
    request = NamesRequest(
        topic, partition, name.encode("utf-8", "replace") or None, _names_begin(visit), limit=NAMES_ROWS
    )
    found = visit.ask_gateway(request)
    return View("names.html", {**values, "found": found, "next": _names_next(values["query"], found.next)})


def _names_begin(visit: Visit) -> Position | None:
    topic = visit.text("begin_topic")
    if not topic:
        return None
    after = visit.text("begin_after")
    try:
        name = base64.urlsafe_b64decode(after) if after else None
    except (binascii.Error, ValueError):
        raise ControlError("begin_after must be base64; open the first page of the list") from None
    return topic, visit.number("begin_partition", 0), name


def _names_next(query: dict[str, Any], position: Position | None) -> dict[str, Any] | None:
    if position is None:
        return None
    topic, partition, after = position
    return {
        **query,
        "begin_topic": topic,
        "begin_partition": partition,
        "begin_after": base64.urlsafe_b64encode(after).decode() if after is not None else None,
    }


PRODUCERS_PAGE: Final = Page(
    "Producers",
    PageGroup.CLIENTS,
    "p",
    Get("/producers", all_producers, waits_for="the producers"),
    Get("/producers/one", one, waits_for="the producer"),
    Feed("/api/producers/strips", strips),
    Feed("/api/verdicts", newer_verdicts),
)


NAMES_PAGE: Final = Page(
    "Producer names",
    PageGroup.CLIENTS,
    "n",
    Get("/names", names, waits_for="the producer names"),
    Feed("/api/names", lambda visit: visit.figures((rates.NAMES, rates.NAMES_DROPPED))),
)
