"""Reads and replays the letters of a dead-letter topic of a cluster. Raises ControlError or an error of
kafka-python.

A replay is a row of transactions of one transactional id. Each has the records of some letters, and for each
partition of the dead-letter topic that the letters are from a note of their offsets:

    killed before a commit    the next replay aborts the transaction, and sends its records again
    killed after a commit     the note is there as soon as the records are
    two replays at once       the later one fences the former, and reads the notes only then

The notes outlive the letters, whatever the retention of the topic is, because they have later offsets. The
offsets of a group would expire with `offsets.retention.minutes`.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from kafka import KafkaProducer
from kafka.errors import BrokerResponseError, KafkaError

from seqgate.gateway.admin.configs.remote import described
from seqgate.gateway.admin.consume import FROM_THE_BEGINNING, Start, read_records
from seqgate.gateway.admin.dead_letters.command import (
    REPLAYED,
    DeadLetter,
    LetterCut,
    LetterFilter,
    ReplayPlan,
    ReplayReport,
    letter_of,
    note_of,
    noted,
    own_headers,
    replay_plan,
)
from seqgate.gateway.admin.produce.remote import DELIVERY_TIMEOUT_S, LARGEST_REQUEST_BYTES, LINGER_MS
from seqgate.gateway.admin.remote.cluster import (
    EARLIEST,
    LATEST,
    Cluster,
    give_up,
    opened,
    sentence,
    topic_partition,
)
from seqgate.gateway.admin.request import ControlError

LETTERS_AT_ONCE: Final = 500
"""The letters that one transaction replays."""
_ENABLED: Final = "errors.deadletterqueue.group.enable"
_DEDUPLICATES: Final = "message.deduplication.enable"
_NAME_HEADERS: Final = tuple(f"message.deduplication.{what}.header" for what in ("name", "sequence", "epoch"))


class FoundLetters(NamedTuple):
    """The letters that a filter takes, the oldest first, and the number of records that are no letters."""

    letters: Sequence[DeadLetter]
    others: int


def list_letters(cluster: Cluster, topic: str, chosen: LetterFilter) -> FoundLetters:
    """Return the letters of a topic that are there now."""
    letters: list[DeadLetter] = []
    replayed: dict[int, set[int]] = defaultdict(set)
    others = 0
    for record in _records(cluster, topic, chosen):
        letter = letter_of(record, record.timestamp)
        if letter is not None:
            if chosen.takes(letter):
                letters.append(letter)
            continue
        try:
            offsets = noted(record)
        except ValueError:
            raise ControlError(
                f"{topic}-{record.partition}@{record.offset} has the header {REPLAYED}, but does not say "
                "which letters were replayed"
            ) from None
        if offsets is None:
            others += 1
        else:
            replayed[record.partition] |= offsets
    marked = (
        msgspec.structs.replace(letter, is_replayed=True)
        if letter.offset in replayed[letter.partition]
        else letter
        for letter in letters
    )
    return FoundLetters(sorted(marked, key=lambda one: (one.timestamp, one.partition, one.offset)), others)


def _records(cluster: Cluster, topic: str, chosen: LetterFilter) -> Iterator[Any]:
    since = chosen.since_ms
    start = FROM_THE_BEGINNING if since is None else Start("time", since)
    return read_records(
        cluster, topic, partitions=(), start=start, follow=False, committed=True, on_pause=lambda: None
    )


def plan(cluster: Cluster, topic: str, chosen: LetterFilter, limit: int | None) -> ReplayPlan:
    """Return which letters a replay would send back now."""
    counts = {row["name"]: len(row["partitions"]) for row in cluster.all_topics() if not row["is_internal"]}
    return replay_plan(topic, list_letters(cluster, topic, chosen).letters, counts, limit)


def replay(cluster: Cluster, topic: str, chosen: LetterFilter, limit: int | None) -> ReplayReport:
    """Send the records of letters back, those of each transaction and their note, or none of both."""
    cluster.topics([topic])
    producer = opened(
        KafkaProducer,
        **cluster.client_settings(),
        transactional_id=f"seqgate-dead-letters-{topic}",
        acks="all",
        enable_idempotence=True,
        linger_ms=LINGER_MS,
        max_request_size=LARGEST_REQUEST_BYTES,
        delivery_timeout_ms=DELIVERY_TIMEOUT_S * 1000,
        allow_auto_create_topics=False,
    )
    is_done = False
    try:
        producer.init_transactions()  # ends what an earlier replay left, so that its notes are readable
        planned = plan(cluster, topic, chosen, limit)
        _replay_all(cluster, producer, planned, chosen)
        is_done = True
    finally:
        if is_done:
            producer.close()
        else:
            give_up(producer)
    return planned.report(is_dry_run=False)


def _replay_all(cluster: Cluster, producer: Any, planned: ReplayPlan, chosen: LetterFilter) -> None:
    letters = {(letter.partition, letter.offset): letter for letter in planned.letters}
    names = _name_headers(cluster, {letter.source_topic for letter in planned.letters})
    wanted = (
        (letters[record.partition, record.offset], record)
        for record in _records(cluster, planned.topic, chosen)
        if (record.partition, record.offset) in letters
    )
    done = 0
    while batch := list(itertools.islice(wanted, LETTERS_AT_ONCE)):
        try:
            _replay_batch(producer, planned.topic, batch, names)
        except KafkaError as error:
            raise ControlError(
                f"the replay ended: {sentence(error)}; {done:,} letters are replayed, and those from "
                f"{planned.topic}-{batch[0][0].partition}@{batch[0][0].offset} on are not"
            ) from error
        done += len(batch)


def _replay_batch(
    producer: Any, topic: str, batch: Sequence[tuple[DeadLetter, Any]], names: dict[str, set[str]]
) -> None:
    """Write the records of letters and their notes in one transaction. Raises KafkaError."""
    offsets: dict[int, list[int]] = defaultdict(list)
    producer.begin_transaction()
    try:
        sent = []
        for letter, record in batch:
            headers = own_headers(record.headers, names.get(letter.source_topic, ()))
            place = letter.source_topic, record.value, record.key, headers, letter.source_partition
            sent.append(producer.send(*place))
            offsets[letter.partition].append(letter.offset)
        for partition, replayed in offsets.items():
            # in a topic with cleanup.policy=compact a note needs a key that no other has, and a value
            key = f"{REPLAYED}:{partition}:{replayed[0]}".encode()
            sent.append(producer.send(topic, note_of(replayed), key, [(REPLAYED, b"")], partition))
        for each in sent:
            each.get(timeout=DELIVERY_TIMEOUT_S)
        producer.commit_transaction()
    except BrokerResponseError:
        # the cluster answers, so it need not wait for the end of the transaction's time
        producer.abort_transaction()
        raise


def _name_headers(cluster: Cluster, topics: Collection[str]) -> dict[str, set[str]]:
    """Return the headers of producer names for each topic that deduplicates by them: the topic would take a
    record with them for a duplicate of the one that died.
    """
    return {
        topic: {str(values.get(name)) for name in _NAME_HEADERS}
        for topic, values in _configs(cluster, topics).items()
        if values.get(_DEDUPLICATES) == "true"
    }


def _configs(cluster: Cluster, topics: Collection[str]) -> dict[str, dict[str, str | None]]:
    """Return the configurations of topics. Raises ControlError where the user may not describe them."""
    found = described(cluster, "topic", sorted(topics)) if topics else {}
    for topic in topics:
        if not found.get(topic):
            raise ControlError(
                f"the configurations of topic {topic} can't be read; DescribeConfigs on it may be missing"
            )
    return {topic: {row.name: row.value for row in rows} for topic, rows in found.items()}


# Drops the oldest letters.


def plan_cuts(
    cluster: Cluster,
    topic: str,
    partition: int | None,
    before_offset: int | None,
    until_ms: int | None,
    *,
    replayed: bool,
) -> list[LetterCut]:
    """Return where to cut the partitions: at an offset, at the first letter that is not older than a time, at
    the first that was not replayed, or else at the end.
    """
    (found,) = cluster.topics([topic])
    _check_is_for_letters(cluster, topic)
    numbers = range(len(found["partitions"]))
    if partition is not None and partition not in numbers:
        raise ControlError(f"topic {topic} has no partition {partition}, only 0 to {len(numbers) - 1}")
    places = [(topic, each) for each in (numbers if partition is None else [partition])]
    starts = cluster.offsets(places, EARLIEST)
    ends = cluster.offsets(places, LATEST, "read_committed")
    wanted: dict[int, int] = {}
    if before_offset is not None:
        wanted = {each: before_offset for _, each in places}
    elif until_ms is not None:
        at_time = cluster.offsets(places, until_ms, "read_committed")
        wanted = {each: at_time[place] for place in places if at_time[place] >= 0 for each in [place[1]]}
    elif replayed:
        wanted = _first_open(list_letters(cluster, topic, LetterFilter()).letters)
    return [
        LetterCut(each, starts[topic, each], min(max(wanted.get(each, end), starts[topic, each]), end))
        for each in (place[1] for place in places)
        for end in [ends[topic, each]]
    ]


def _check_is_for_letters(cluster: Cluster, topic: str) -> None:
    """Refuse a topic whose records a mistyped name would delete. Raises ControlError."""
    if _configs(cluster, [topic])[topic].get(_ENABLED) != "true":
        raise ControlError(
            f"topic {topic} does not have {_ENABLED}=true, so it is no dead-letter topic; nothing is dropped"
        )


def _first_open(letters: Iterable[DeadLetter]) -> dict[int, int]:
    """Return the offset of the first letter of each partition that was not replayed."""
    found: dict[int, int] = {}
    for letter in letters:
        if not letter.is_replayed:
            found[letter.partition] = min(letter.offset, found.get(letter.partition, letter.offset))
    return found


def cut(cluster: Cluster, topic: str, cuts: Iterable[LetterCut]) -> None:
    """Delete the records before the new starts of partitions (DeleteRecords)."""
    wanted = {topic_partition(topic, row.partition): row.new_start_offset for row in cuts if row.offsets}
    if wanted:
        cluster.admin.delete_records(wanted)
