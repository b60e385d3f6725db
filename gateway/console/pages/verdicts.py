"""The newest batches that the gateway did not store, for the pages about producers."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from seqgate.gateway.admin.verdicts.messages import ListVerdictsRequest, VerdictRow
from seqgate.gateway.console.answer import Answer, Data
from seqgate.gateway.console.page import Visit

ROWS: Final = 100
"""Verdicts of a table."""


def verdicts(
    visit: Visit,
    topic: str | None,
    partition: int | None,
    producer_id: int | None,
    *,
    after: int = 0,
    limit: int = ROWS,
) -> list[VerdictRow]:
    """Return the newest verdicts, the newest first. Raises ControlError."""
    request = ListVerdictsRequest(topic, partition, producer_id, after, limit=limit)
    return visit.ask_gateway(request).verdicts


def table_of(
    visit: Visit, topic: str | None, partition: int | None, producer_id: int | None = None
) -> dict[str, Any]:
    """Return the values of templates/parts/verdicts.html; `verdicts` is None if no listener answers."""
    source = {"topic": topic, "partition": partition, "id": producer_id}
    found, trouble = visit.told(ListVerdictsRequest(topic, partition, producer_id, limit=ROWS))
    rows = None if found is None else [shown(row) for row in found.verdicts]
    return {"verdicts": rows, "verdicts_trouble": trouble, "verdicts_source": source}


def shown(row: VerdictRow) -> dict[str, Any]:
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
        "client_id": row.client_id,
        "message": row.message,
        "short": reason.short,
        "meaning": reason.meaning,
        "advice": reason.advice,
    }


def newer(visit: Visit) -> Answer:
    """Return the verdicts after a number, for the island that adds them to the table."""
    rows = verdicts(
        visit,
        visit.text("topic") or None,
        visit.optional_number("partition"),
        visit.optional_number("id"),
        after=visit.number("number", 0),
    )
    return Data({"verdicts": [shown(row) for row in rows]})


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
        "the partition does not remember the producer",
        "The partition does not remember this producer: the producer was idle for too long, or its records "
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
