"""The producers of partitions, what happened to their batches over time, and the producer names of topics."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from msgspec import structs

from seqgate.gateway.admin.client import summed
from seqgate.gateway.admin.names import NamesRequest, Position, joined_names
from seqgate.gateway.admin.pids import FindOwnerRequest, joined_owner
from seqgate.gateway.admin.producers import (
    ListProducersRequest,
    ProducerCounters,
    ProducerRow,
    list_producers_remote,
)
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.tables import shown
from seqgate.gateway.admin.transactions.list_and_describe import (
    ListTransactionsRequest,
    TransactionRow,
    list_transactions_remote,
)
from seqgate.gateway.admin.verdicts import ListVerdictsRequest, VerdictPage, VerdictRow
from seqgate.gateway.console.answer import Data, PageAnswer, View
from seqgate.gateway.console.asking.connections import Cache
from seqgate.gateway.console.asking.topics import topic_lines, topic_settings
from seqgate.gateway.console.metrics import rates
from seqgate.gateway.console.metrics.producer_events import KEPT_MS, judged, key_of
from seqgate.gateway.console.page import Feed, Gathered, Get, Page, PageGroup, Visit, numbers_of, numbers_text
from seqgate.gateway.security.principals import ClientIdentity


def all_producers(visit: Visit) -> PageAnswer:
    """Show a page of the producers, and the newest batches that were not stored."""
    topic, partition = visit.place()
    cursor = cursor_of(visit)
    told = producers(visit, topic, partition, cursor, ROWS)
    from_id = visit.optional_number("from_id")
    query: dict[str, Any] = {"topic": topic, "partition": partition}
    return View(
        "producers.html",
        {
            "rows": [(key_of(*place_of(row)), row) for row in told.rows],
            "counters": told.counters,
            "trouble": told.trouble,
            "silent": told.silent,
            "is_whole": told.is_whole,
            "topic": topic,
            "partition": partition,
            "query": query,
            "begins": cursor != Cursor(begin=cursor.begin),
            "from_id": from_id,
            "after": _cursor_fields(cursor),
            "next": None if told.next is None else {**query, "from_id": from_id, **_cursor_fields(told.next)},
            **table_of(visit, topic, partition),
        },
    )


IDLE_MS: Final = 5 * 60_000
"""The time without a batch after which a producer's strip is empty, and the list has the producer last."""

Place = tuple[str, int, int]
"""Topic, partition and producer id."""


class Cursor(NamedTuple):
    """The start of a page of the list, which has the active producers first and then the idle ones. The page
    begins after the row `after` of the active producers, or with `is_idle` of the idle ones. Each part of the
    list begins after `begin`.
    """

    after: Place | None = None
    is_idle: bool = False
    begin: Place | None = None


FIRST: Final = Cursor()


def _cursor_fields(cursor: Cursor) -> dict[str, Any]:
    """Return the fields of an address from which `cursor_of` makes the cursor again."""
    fields: dict[str, Any] = {"idle": 1} if cursor.is_idle else {}
    if cursor.after is not None:
        fields |= dict(zip(("after_topic", "after_partition", "after_id"), cursor.after, strict=True))
    return fields


def cursor_of(visit: Visit) -> Cursor:
    """Return where the page begins: after after_topic, _partition and _id, with no id below from_id."""
    topic, partition = visit.text("topic"), visit.optional_number("partition")
    first = visit.optional_number("from_id")
    begin = None if first is None or partition is None else (topic, partition, first - 1)
    after = None
    producer_id = visit.optional_number("after_id", -1)
    if producer_id is not None:
        after = (
            visit.text("after_topic") or topic,
            visit.number("after_partition", partition or 0),
            producer_id,
        )
    return Cursor(after, visit.text("idle") == "1", begin)


# Asks for producers: all gateways and workers, otherwise the cluster as any other, which tells less.

KEPT_S: Final = 30.0
"""The longest time for which a page counts; one that came fast counts for a fraction of a second."""
MOST_PARTITIONS: Final = 500
"""Partitions that are asked together over the Kafka protocol; for more, choose a topic."""


@dataclass(frozen=True, slots=True)
class Told:
    """Some producers, and where the next page begins; None: no producer follows. `is_whole`: the gateways
    told them, with what only they know. `trouble` says why they did not, `silent` which of several did not.
    """

    rows: Sequence[ProducerRow]
    is_whole: bool
    next: Cursor | None = None
    counters: ProducerCounters | None = None
    trouble: str | None = None
    silent: Sequence[str] = ()


_pages: Final[Cache[Told]] = Cache(KEPT_S)


def producers(visit: Visit, topic: str | None, partition: int | None, cursor: Cursor, limit: int) -> Told:
    """Return at most `limit` producers from a cursor on: those that write by topic, partition and id, then
    the idle ones. Raises ControlError. The page, its feed and the sampler share an answer where the answer
    took long.
    """
    key = (visit.console.options, topic, partition, cursor, limit)
    return _pages.get(visit.security, key, lambda: _asked(visit, topic, partition, cursor, limit))


def _asked(visit: Visit, topic: str | None, partition: int | None, cursor: Cursor, limit: int) -> Told:
    told = Told((), is_whole=True)
    request = ListProducersRequest(topic, partition, cursor.after or cursor.begin, limit=limit)
    if not cursor.is_idle:
        told = _of_gateways(visit, structs.replace(request, within_ms=IDLE_MS), cursor)
        if not told.is_whole:
            return _over_kafka(visit, request, told.trouble)
        if told.next is not None:
            return told
        request = structs.replace(request, after=cursor.begin)
    left = limit - len(told.rows)
    idle = _of_gateways(visit, structs.replace(request, idle_ms=IDLE_MS, limit=max(left, 1)), cursor)
    if not left:  # whether a page follows is all that is asked
        after = place_of(told.rows[-1])
        return replace(told, next=cursor._replace(after=after) if idle.rows else None)
    following = None if idle.next is None else idle.next._replace(is_idle=True)
    return replace(idle, rows=[*told.rows, *idle.rows], next=following, silent=idle.silent or told.silent)


def _of_gateways(visit: Visit, request: ListProducersRequest, cursor: Cursor) -> Told:
    """Return what the gateways tell. Raises Unreachable."""
    found, trouble = visit.told_by_gateways(request)
    if found is None:
        return Told((), is_whole=False, trouble=trouble)
    pages = found.answers
    ends = [place_of(page.producers[-1]) for page in pages if not page.complete]
    rows = {place_of(row): row for page in pages for row in page.producers}
    places = sorted(place for place in rows if not ends or place <= min(ends))
    following = None
    if ends or len(places) > request.limit:
        places = places[: request.limit]
        following = cursor._replace(after=places[-1])
    counters = summed([page.counters for page in pages])
    return Told(
        [rows[place] for place in places],
        is_whole=True,
        next=following,
        counters=counters,
        silent=found.silent,
    )


def place_of(row: ProducerRow) -> Place:
    return row.topic, row.partition, row.producer_id


def _over_kafka(visit: Visit, request: ListProducersRequest, trouble: str | None) -> Told:
    """Return what any cluster tells; it does not know which producers are idle. Raises ControlError."""
    topic, partition = request.topic, request.partition
    with visit.cluster() as cluster:
        if topic is None:
            partitions = sum(line.partitions for line in topic_lines(cluster) if not line.is_internal)
            if partitions > MOST_PARTITIONS:
                raise ControlError(
                    f"the cluster has {partitions:,} partitions, and {MOST_PARTITIONS} are asked together; "
                    "choose a topic"
                )
        rows = list_producers_remote(cluster, ListProducersRequest(topic, partition)).producers
    later = [row for row in rows if request.after is None or place_of(row) > request.after]
    following = None if len(later) <= request.limit else Cursor(place_of(later[request.limit - 1]))
    return Told(later[: request.limit], is_whole=False, next=following, trouble=trouble)


# The feed of the strips: what the producers of a page wrote, repeated and were refused in the newest minutes.

ROWS: Final = 50
MOST_VERDICTS: Final = 2_000


def strips(visit: Visit) -> PageAnswer:
    """Return the events after a time, and after a number of verdicts, of the producers of one page."""
    topic, partition = visit.place()
    producer_id = visit.optional_number("id")
    rows: dict[str, ProducerRow | None]
    if topic is not None and partition is not None and producer_id is not None:
        place = topic, partition, producer_id
        rows = {key_of(*place): producer(visit, place)[0]}
    else:
        told = producers(visit, topic, partition, cursor_of(visit), ROWS)
        rows = {key_of(*place_of(row)): row for row in told.rows}
    now_ms = time.time_ns() // 1_000_000
    seen = visit.console.sampler.producers
    seen.see(now_ms, [row for row in rows.values() if row is not None])
    sampled, events = seen.after(max(visit.number("after", 0), now_ms - KEPT_MS), rows.keys())
    numbers = numbers_of(visit, "numbers")
    request = ListVerdictsRequest(topic, partition, producer_id, after_of=numbers, limit=MOST_VERDICTS)
    gathered, trouble = visit.told_by_gateways(request)
    if gathered is not None:
        trouble = gathered.trouble
    for row in [] if gathered is None else _newer(gathered, request, numbers):
        key = key_of(row.topic, row.partition, row.producer_id)
        if key in events:
            events[key].append(judged(row))
    return Data(
        {
            "now": now_ms,
            "since": {key: seen.since_ms(key) for key in rows},
            "gaps": seen.gaps,
            "sampled": sampled,
            "numbers": numbers_text(numbers),
            "events": {key: sorted(of_key) for key, of_key in events.items() if of_key},
            "rows": {key: _shown(row) for key, row in rows.items() if row is not None},
            "error": trouble,
        }
    )


def _newer(
    found: Gathered[VerdictPage], request: ListVerdictsRequest, numbers: dict[int, int]
) -> list[VerdictRow]:
    """Return the verdicts after a number of each gateway, the newest first; note the newest numbers."""
    rows: list[VerdictRow] = []
    for of_gateway in (page.verdicts for page in found.answers if page.verdicts):
        node_id, newest = of_gateway[0].node_id, of_gateway[0].number
        begin = numbers.pop(node_id, 0)
        numbers[node_id] = newest
        # lower numbers than before are those of a gateway that has started again
        rows += [row for row in of_gateway if row.number > begin or newest < begin]
    rows.sort(key=lambda row: (row.time_ms, row.node_id, row.number), reverse=True)
    return rows[: request.limit]


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


# One producer in one partition: what happened to its batches, its block of ids, its transaction and its
# verdicts.


def producer(visit: Visit, place: Place) -> tuple[ProducerRow | None, str | None]:
    """Return a producer, None for one that is not there, and why no gateway told it. Raises ControlError."""
    topic, partition, producer_id = place
    key = (visit.console.options, place)
    before = topic, partition, producer_id - 1

    def ask() -> Told:
        request = ListProducersRequest(topic, partition, before, limit=1)
        told = _of_gateways(visit, request, FIRST)
        return told if told.is_whole else _over_kafka(visit, request, told.trouble)

    told = _pages.get(visit.security, key, ask)
    return next((row for row in told.rows if row.producer_id == producer_id), None), told.trouble


def one(visit: Visit) -> PageAnswer:
    topic = visit.text("topic")
    if not topic:
        raise ControlError("the address must name a topic; choose a producer from the list of producers")
    partition, producer_id = visit.number("partition", 0), visit.number("id", 0)
    row, trouble = producer(visit, (topic, partition, producer_id))
    told, owner_trouble = visit.told_by_gateways(FindOwnerRequest(producer_id))
    transactions, transactions_trouble = _transactions(visit, producer_id)
    return View(
        "producers_one.html",
        {
            "topic": topic,
            "partition": partition,
            "producer_id": producer_id,
            "key": key_of(topic, partition, producer_id),
            "row": row,
            "trouble": trouble,
            "owner": None if told is None else joined_owner(told.answers),
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
    """Return the values of templates/parts/verdicts.html; `verdicts` is None if no gateway answers."""
    source = {"topic": topic, "partition": partition, "id": producer_id}
    request = ListVerdictsRequest(topic, partition, producer_id, limit=VERDICT_ROWS)
    found, trouble = visit.told_by_gateways(request)
    numbers: dict[int, int] = {}
    newest = [] if found is None else _newer(found, request, numbers)
    return {
        "verdicts": None if found is None else [shown_verdict(row) for row in newest],
        "verdicts_trouble": trouble if found is None else found.trouble,
        "verdicts_source": source,
        "verdict_numbers": numbers_text(numbers),
        "names_nodes": found is not None and found.is_several,
    }


def shown_verdict(row: VerdictRow) -> dict[str, Any]:
    reason = reason_of(row)
    is_one = row.base_sequence == row.last_sequence
    sequences = str(row.base_sequence) if is_one else f"{row.base_sequence}–{row.last_sequence}"
    return {
        "node": row.node_id,
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
    """Return the verdicts after a number of each gateway, for the island that adds them to the table."""
    topic, partition = visit.place()
    numbers = numbers_of(visit, "numbers")
    request = ListVerdictsRequest(
        topic, partition, visit.optional_number("id"), after_of=numbers, limit=VERDICT_ROWS
    )
    found = visit.ask_gateways(request)
    rows = [shown_verdict(row) for row in _newer(found, request, numbers)]
    error = found.trouble
    return Data({"verdicts": rows, "numbers": numbers_text(numbers), "error": error})


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
        "its sequences do not follow",
        "The first sequence is not the one that the message expects. If it is higher, a batch in between is "
        "missing. If it is lower, the batch is older than those that the gateway keeps of this producer, "
        "and its records may be stored already.",
        "The client sends a missing batch again by itself; if the error lasts, restart the producer. For an "
        "old batch look first whether its records are stored, because a producer that restarts would store "
        "them twice; set max.in.flight.requests.per.connection to 5 or less.",
    ),
    "INVALID_PRODUCER_EPOCH": _FENCED,
    "PRODUCER_FENCED": _FENCED,
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
        "The gateway had no room for the batch: a backlog quota, the bucket or a limit of names or delayed "
        "records. Or an earlier batch of the producer was refused, and must come first.",
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
        "The partition can't be written: the disk has no room, or the partition is offline.",
        "Open the overview: it says what is wrong with the disk or the partition.",
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
    with visit.partial() as cluster:
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
    request = NamesRequest(
        topic, partition, name.encode("utf-8", "replace") or None, _names_begin(visit), limit=NAMES_ROWS
    )
    told, trouble = visit.told_by_gateways(request)
    found = None if told is None else joined_names(told.answers, NAMES_ROWS)
    following = None if found is None else _names_next(values["query"], found.next)
    return View("names.html", {**values, "told": told, "trouble": trouble, "found": found, "next": following})


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
