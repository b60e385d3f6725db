"""Dead letters: what a record of a share group leaves in the group's dead-letter topic when no member could
process it.

A letter has the headers of the record and those of its place and death, and with `copy.record.enable` the
record's key and value. It carries the time at which it was written. All header values are text:

    __dlq.errors.topic             the record's topic; the topic id where the topic is gone
    __dlq.errors.partition         its partition
    __dlq.errors.offset            its offset
    __dlq.errors.group             the share group
    __dlq.errors.delivery.count    how often it was delivered
    __dlq.errors.message           why it died

Letters go to the partition of the record's number, modulo the number of partitions of the dead-letter topic.

A round of letters is one batch of an idempotent producer of which nobody else has heard: its id is derived
from the group, the partition and the time of the first letter, its epoch is the number of the round, and its
sequence begins at 0. So the same round has the same producer and sequence at every gateway and after every
crash. Source: Kafka's `ShareGroupDLQStateManager`, `ShareGroupDLQManager`, KIP-1191.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

from seqgate.gateway.coordinator.share.records import SharePartitionKey
from seqgate.gateway.coordinator.share.share_partition import Letter
from seqgate.seq_validator import FIRST_DERIVED_ID

REJECTED: Final = "Offset rejected by client."
DELIVERED_TOO_OFTEN: Final = "Offset delivery count exceeded the threshold."
TOPIC: Final = "__dlq.errors.topic"
PARTITION: Final = "__dlq.errors.partition"
OFFSET: Final = "__dlq.errors.offset"
GROUP: Final = "__dlq.errors.group"
DELIVERY_COUNT: Final = "__dlq.errors.delivery.count"
MESSAGE: Final = "__dlq.errors.message"

Headers = tuple[tuple[str, bytes | None], ...]

_EPOCH_BITS: Final = 15


def headers_of(key: SharePartitionKey, topic: str, letter: Letter, offset: int) -> Headers:
    """Return the headers that a letter has besides those of its record, in Kafka's order."""
    said = (
        (TOPIC, topic),
        (PARTITION, str(key.partition)),
        (OFFSET, str(offset)),
        (GROUP, key.group_id),
        (DELIVERY_COUNT, str(letter.delivery_count)),
        (MESSAGE, REJECTED if letter.is_rejected else DELIVERED_TOO_OFTEN),
    )
    return tuple((name, text.encode()) for name, text in said)


class LetterProducer(NamedTuple):
    """The producer of one round of letters; its batch has the sequences from 0 on."""

    producer_id: int
    producer_epoch: int


def producer_of(key: SharePartitionKey, since_ms: int, number: int) -> LetterProducer:
    """Return the producer of a round: the same one for the same round, and a newer epoch for a later one.
    When the epochs are used up, the producer gets another id.
    """
    life = number >> _EPOCH_BITS
    text = f"{key.group_id}\0{key.topic_id}\0{key.partition}\0{since_ms}\0{life}"
    digest = hashlib.sha256(text.encode()).digest()
    producer_id = FIRST_DERIVED_ID | int.from_bytes(digest[:8]) >> 2
    return LetterProducer(producer_id, number & ((1 << _EPOCH_BITS) - 1))


def refusal_of(topic: str, *, prefix: str, is_there: bool, is_enabled: bool, creates: bool) -> str | None:
    """Return why a group can't have its dead letters in a topic; None when it can. `is_enabled`: the topic
    allows it; `creates`: a missing topic is created.
    """
    if topic.startswith("__"):
        return "its name begins with __"
    if is_there and not is_enabled:
        return "the topic does not have errors.deadletterqueue.group.enable=true"
    if not topic.startswith(prefix):
        return f"its name does not begin with {prefix} (errors.deadletterqueue.topic.name.prefix)"
    if not is_there and not creates:
        return "the topic does not exist, and errors.deadletterqueue.auto.create.topics.enable is false"
    return None
