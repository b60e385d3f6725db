"""`seqgate dead-letters`: the records that share groups gave up (KIP-1191)."""

from __future__ import annotations

import itertools
import re
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec

from seqgate.gateway.admin.commands import Commands, OptionsOf, Output, argument, asks, flag, option, stop
from seqgate.gateway.admin.completion import group_names, topic_names
from seqgate.gateway.admin.options import Consented, OpenedCluster, cluster, parsed_or_exit_2
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.tables import (
    Block,
    Column,
    Offset,
    PartitionNumber,
    TopicName,
    count,
    counted,
    moment,
    number,
    shown,
    table,
)
from seqgate.gateway.admin.times import time_or_age_ms

if TYPE_CHECKING:
    from seqgate.gateway.admin.remote.cluster import Cluster

# The letters, and which of them a command means. Pure.

NO_CONTENT: Final = (
    "the letter has no content; errors.deadletterqueue.copy.record.enable=true of the group copies the "
    "records of later letters"
)
NULL_HEADER: Final = "a header of the record is null, which this command can't send"
LONGEST_KEY: Final = 40
"""The characters of a key that tables show."""


class DeadLetter(msgspec.Struct, frozen=True):
    """A letter: its place, and what its headers say about its record. `key` has escapes in place of bytes
    that are no UTF-8.
    """

    partition: PartitionNumber
    offset: Offset
    timestamp: Annotated[int, Column("written", moment)]
    source_topic: str
    source_partition: int
    source_offset: int
    group: Annotated[str, Column("group")]
    delivery_count: Annotated[int | None, Column("deliv-\neries", number)]
    reason: Annotated[str, Column("reason")]
    key: str | None
    has_content: Annotated[bool, Column("content", lambda value: "yes" if value else "no")]
    has_null_header: bool = False
    is_replayed: Annotated[bool, Column("replayed", lambda value: "yes" if value else "no")] = False

    @property
    def record(self) -> Annotated[str, Column("record")]:
        """The place of the record."""
        return f"{self.source_topic}-{self.source_partition}@{self.source_offset}"

    @property
    def short_key(self) -> Annotated[str | None, Column("key")]:
        """The beginning of the key."""
        return None if self.key is None else shown(self.key, LONGEST_KEY)

    def refusal(self, partition_counts: Mapping[str, int]) -> str | None:
        """Return why the record can't be sent back; None when it can. `partition_counts` has the topics that
        take records.
        """
        partitions = partition_counts.get(self.source_topic)
        if not self.has_content:
            return NO_CONTENT
        if self.has_null_header:
            return NULL_HEADER
        if partitions is None:
            return f"there is no topic {shown(self.source_topic)}, or it is internal"
        if not 0 <= self.source_partition < partitions:
            return f"topic {shown(self.source_topic)} has no partition {self.source_partition}"
        return None


class LetterFilter(msgspec.Struct, frozen=True):
    """The letters that a command means: those that have all that is given."""

    group: str | None = None
    source_topic: str | None = None
    key: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def takes(self, letter: DeadLetter) -> bool:
        """Return whether a letter is meant."""
        return (
            self.group in {None, letter.group}
            and self.source_topic in {None, letter.source_topic}
            and (self.key is None or self.key == letter.key)
            and (self.since_ms is None or letter.timestamp >= self.since_ms)
            and (self.until_ms is None or letter.timestamp < self.until_ms)
        )


class ReplayPlan(msgspec.Struct, frozen=True):
    """The letters to replay, and those that are not: replayed before, or refused, by reason."""

    topic: str
    letters: Sequence[DeadLetter]
    already_replayed: int
    refused: Mapping[str, int]

    def report(self, *, is_dry_run: bool) -> ReplayReport:
        """Return what is, or would be, sent back."""
        to = Counter(letter.source_topic for letter in self.letters)
        return ReplayReport(
            topic=self.topic,
            is_dry_run=is_dry_run,
            replayed=[ReplayedTopic(*row) for row in sorted(to.items())],
            already_replayed=self.already_replayed,
            refused=[RefusedLetters(*row) for row in sorted(self.refused.items())],
        )


def replay_plan(
    topic: str, letters: Iterable[DeadLetter], partition_counts: Mapping[str, int], limit: int | None
) -> ReplayPlan:
    """Return which letters to replay, at most `limit` of them."""
    letters = list(letters)
    open_letters = [letter for letter in letters if not letter.is_replayed]
    refusals = [letter.refusal(partition_counts) for letter in open_letters]
    fit = [letter for letter, refusal in zip(open_letters, refusals, strict=True) if refusal is None]
    refused = Counter(refusal for refusal in refusals if refusal is not None)
    return ReplayPlan(topic, fit[:limit], len(letters) - len(open_letters), refused)


# What a record of a dead-letter topic is: a letter, or a note of letters that were replayed.

PREFIX: Final = "__dlq."
"""The beginning of the names of headers that a letter has beside those of its record."""
REPLAYED: Final = "__dlq.replayed"
"""The header of a note. The value of the record is the offsets of letters in its partition: `3-7,12`."""
MOST_NOTED: Final = 10_000
"""The letters in one range of a note. A longer range is damaged."""
_ERRORS: Final = "__dlq.errors."
_NUMBER: Final = re.compile(r"\d{1,19}", re.ASCII)
"""A number in a header or note: at most as many digits as an int64 has. Any client may write longer ones."""


def letter_of(record: Any, timestamp_ms: int) -> DeadLetter | None:
    """Return the letter that a record of the topic is; None for another record. Of headers with one name the
    last counts, because those of the record come first.
    """
    said = {name: value for name, value in record.headers if name.startswith(_ERRORS) and value is not None}
    texts = {name.removeprefix(_ERRORS): _text(value) for name, value in said.items()}
    try:
        place = texts["topic"], _number(texts["partition"]), _number(texts["offset"])
    except (KeyError, ValueError):
        return None
    deliveries = texts.get("delivery.count", "")
    return DeadLetter(
        record.partition,
        record.offset,
        timestamp_ms,
        *place,
        texts.get("group", ""),
        int(deliveries) if _NUMBER.fullmatch(deliveries) else None,
        texts.get("message", ""),
        None if record.key is None else _text(record.key),
        record.key is not None or record.value is not None,
        any(value is None for _, value in own_headers(record.headers)),
    )


def own_headers(
    headers: Iterable[tuple[str, bytes | None]], without: Iterable[str] = ()
) -> list[tuple[str, bytes | None]]:
    """Return the headers of the record that died, without those named."""
    return [
        (name, value) for name, value in headers if not name.startswith(PREFIX) and name not in set(without)
    ]


def note_of(offsets: Sequence[int]) -> bytes:
    """Return the value of a note about these letters, in their order."""
    ranges: list[list[int]] = []
    for offset in offsets:
        if ranges and ranges[-1][1] == offset - 1:
            ranges[-1][1] = offset
        else:
            ranges.append([offset, offset])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in ranges).encode()


def noted(record: Any) -> set[int] | None:
    """Return the offsets that a note has; None for another record. Raises ValueError for a damaged note."""
    if REPLAYED not in dict(record.headers):
        return None
    found: set[int] = set()
    for part in (record.value or b"").decode("ascii").split(","):
        first, _, last = part.partition("-")
        first_offset, last_offset = _number(first), _number(last or first)
        if last_offset - first_offset >= MOST_NOTED:
            raise ValueError(f"{part} is longer than a note can be")
        found.update(range(first_offset, last_offset + 1))
    return found


def _number(text: str) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"{text[:40]!r} is not a number of at most 19 digits")
    return int(text)


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


# The JSON output of `seqgate dead-letters … --json`.


class LetterCount(msgspec.Struct, frozen=True):
    """The letters of a group that have one reason."""

    group: str
    reason: str
    letters: int
    replayed: int


class LetterListing(msgspec.Struct, frozen=True):
    """Letters of a topic. `summary` counts all that the filters take, also beyond the limit; `others` counts
    the records of the topic that are no letters.
    """

    topic: str
    letters: Sequence[DeadLetter]
    summary: Sequence[LetterCount]
    others: int


class ReplayedTopic(msgspec.Struct, frozen=True):
    """The records that went back to a topic."""

    topic: str
    records: int


class RefusedLetters(msgspec.Struct, frozen=True):
    """The letters that can't be replayed for one reason."""

    reason: str
    letters: int


class ReplayReport(msgspec.Struct, frozen=True):
    """The outcome of a replay, or with `is_dry_run` what it would be."""

    topic: str
    is_dry_run: bool
    replayed: Sequence[ReplayedTopic]
    already_replayed: int
    refused: Sequence[RefusedLetters]


class LetterCut(msgspec.Struct, frozen=True):
    """The first offsets of a partition before and after its oldest letters are dropped."""

    partition: PartitionNumber
    log_start_offset: Annotated[int, Column("log start", number)]
    new_start_offset: Annotated[int, Column("new start", number)]

    @property
    def offsets(self) -> Annotated[int, Column("offsets", count)]:
        """The offsets in between; those of records that are gone count too."""
        return self.new_start_offset - self.log_start_offset


class DropReport(msgspec.Struct, frozen=True):
    """The outcome of a drop, or with `is_dry_run` what it would be."""

    topic: TopicName
    partitions: Sequence[LetterCut]
    is_dry_run: bool

    @property
    def offsets(self) -> int:
        """The offsets that are dropped."""
        return sum(row.offsets for row in self.partitions)


app = Commands("""List, replay and drop the dead letters of share groups.

A share group writes a letter for each record that it gives up, \
if errors.deadletterqueue.topic.name of the group names a topic.

The commands speak the Kafka protocol with the cluster at --bootstrap: \
a Seqgate gateway on any machine, or Apache Kafka.
""")

DeadLetterTopic = Annotated[
    str, argument("TOPIC", "The dead-letter topic of the groups.", autocompletion=topic_names)
]
Limit = Annotated[int | None, option("--limit", "N", "Only the N oldest of them.", min=1)]


def _time(text: str) -> int:
    return time_or_age_ms(text, time.time_ns() // 1_000_000)


def _filter(
    group: str | None = option(
        "--group", "GROUP", "Only letters of this share group.", autocompletion=group_names
    ),
    source: str | None = option(
        "--topic", "SOURCE", "Only letters of records of this topic.", autocompletion=topic_names
    ),
    key: str | None = option("--key", "KEY", "Only letters of records with this key."),
    since: str | None = option(
        "--since",
        "TIME",
        "Only letters not older than this: 10m, 2h or 1d ago, 2026-01-31T13:45:00 (local time, or with Z or "
        "+02:00), or milliseconds.",
    ),
    until: str | None = option("--until", "TIME", "Only letters older than this."),
) -> LetterFilter:
    return LetterFilter(
        group,
        source,
        key,
        parsed_or_exit_2(_time, since, "--since"),
        parsed_or_exit_2(_time, until, "--until"),
    )


Chosen: TypeAlias = Annotated[LetterFilter, OptionsOf(_filter)]


@app.command("list")
@asks(cluster)
def list_letters(
    opened: OpenedCluster, topic: DeadLetterTopic, chosen: Chosen, limit: Limit = None
) -> Output:
    """List the letters of a dead-letter topic, the oldest first, and count them by group and reason.

    \b
    Columns:
      partition, offset   the place of the letter in the dead-letter topic
      written             when the letter was written
      record              topic, partition and offset of the record
      deliveries          how often the group got the record
      content             whether the letter has the record, so that it can be replayed
      replayed            whether `seqgate dead-letters replay` has sent the record back
    """  # noqa: D301 - \b keeps the lines of the list apart
    with opened as reached:
        reached.existing_topics([topic])
        letters, others = find_letters(reached, topic, chosen)
    listing = LetterListing(topic, letters[:limit], _summary(letters), others)
    return Output(listing, _listing_text(listing))


@app.command("replay")
@asks(cluster)
def replay(
    opened: OpenedCluster, topic: DeadLetterTopic, *, chosen: Chosen, limit: Limit = None, consent: Consented
) -> Output:
    """Send the records of letters back to the partitions that they came from, each exactly once.

    A record gets its key, its value and its own headers, and a new offset and time. Letters that were
    replayed before are left out, so the command can be repeated, also after it was killed. Letters of one
    partition are replayed in their order. A letter can't be replayed without the content of its record:
    groups copy it with errors.deadletterqueue.copy.record.enable=true.

    Records and the note of what was replayed are written in one transaction. The note is a record of the
    dead-letter topic, with the header __dlq.replayed. The command shows first what it would send, and asks.
    Where there is no terminal, and with --json, nothing is sent without --yes.

    \b
    For example:
      seqgate dead-letters replay dlq.orders --dry-run
      seqgate dead-letters replay dlq.orders --group billing --since 2h --yes
    """  # noqa: D301 - \b keeps the lines of the list apart
    with opened as reached:
        reached.existing_topics([topic])

        def replay_them(execute: bool) -> ReplayReport:
            if execute:
                return replay_letters(reached, topic, chosen, limit)
            return plan_replay(reached, topic, chosen, limit).report(is_dry_run=True)

        report = consent.plan_ask_and_do(
            replay_them,
            _replay_text,
            "Replay them?",
            is_needed=lambda planned: planned.replayed,
            otherwise="Nothing is replayed. --yes replays without asking.",
        )
    return Output(report, _replay_text(report))


@app.command("drop")
@asks(cluster)
def drop(
    opened: OpenedCluster,
    topic: DeadLetterTopic,
    *,
    everything: bool = flag("--all", "Drop all letters."),
    replayed: bool = flag("--replayed", "Drop the letters before the first that was not replayed."),
    until: str | None = option(
        "--until",
        "TIME",
        "Drop the letters before the first that is not older than this: 10m, 2h or 1d ago, "
        "2026-01-31T13:45:00 (local time, or with Z or +02:00), or milliseconds.",
    ),
    before_offset: int | None = option(
        "--before-offset", "OFFSET", "Drop the letters of --partition before this offset.", min=0
    ),
    partition: int | None = option("--partition", "N", "Only this partition. [default: all]", min=0),
    key: str | None = option("--key", "KEY", "Not possible: a log can only be cut at its beginning."),
    consent: Consented,
) -> Output:
    """Drop the oldest letters of a dead-letter topic (DeleteRecords).

    A log can only be cut at its beginning: letters can be dropped up to a time or an offset, but not by key
    or group. The command shows first what it would drop, and asks. Where there is no terminal, and with
    --json, nothing is dropped without --yes.

    \b
    For example:
      seqgate dead-letters drop dlq.orders --replayed
      seqgate dead-letters drop dlq.orders --until 7d --yes
      seqgate dead-letters drop dlq.orders --partition 0 --before-offset 1200 --dry-run
    """  # noqa: D301 - \b keeps the lines of the list apart
    if key is not None:
        raise stop(
            "letters can't be dropped by key: a log can only be cut at its beginning; give --until or "
            "--before-offset",
            code=2,
        )
    if [everything, replayed, until is not None, before_offset is not None].count(True) != 1:
        raise stop("give one of --all, --replayed, --until and --before-offset", code=2)
    if before_offset is not None and partition is None:
        raise stop("--before-offset needs --partition, because each partition has offsets of its own", code=2)
    until_ms = parsed_or_exit_2(_time, until, "--until")
    with opened as reached:
        cuts = plan_cuts(reached, topic, partition, before_offset, until_ms, replayed=replayed)

        def drop_them(execute: bool) -> DropReport:
            if execute:
                drop_letters(reached, topic, cuts)
            return DropReport(topic, cuts, is_dry_run=not execute)

        report = consent.plan_ask_and_do(
            drop_them,
            _drop_text,
            "Drop them?",
            is_needed=lambda planned: planned.offsets,
            otherwise="Nothing is dropped. --yes drops without asking.",
        )
    return Output(report, _drop_text(report))


def _summary(letters: Iterable[DeadLetter]) -> list[LetterCount]:
    all_letters: Counter[tuple[str, str]] = Counter()
    replayed: Counter[tuple[str, str]] = Counter()
    for letter in letters:
        all_letters[letter.group, letter.reason] += 1
        replayed[letter.group, letter.reason] += letter.is_replayed
    return [LetterCount(*key, number, replayed[key]) for key, number in sorted(all_letters.items())]


_LISTED: Final = (
    "partition offset timestamp record group delivery_count reason short_key has_content is_replayed"
)


def _listing_text(listing: LetterListing) -> Iterator[Block]:
    total, listed = sum(row.letters for row in listing.summary), len(listing.letters)
    yield table(DeadLetter, listing.letters, _LISTED)
    of_them = f", of which the oldest {listed:,} are listed" if listed < total else ""
    yield f"{counted(total, 'letter')}{of_them}."
    for row in listing.summary:
        letters = f"{counted(row.letters, 'letter')}, {row.replayed:,} replayed"
        yield f"Group {shown(row.group)}: {letters}: {shown(row.reason)}"
    if listing.others:
        yield f"{counted(listing.others, 'record')} of the topic are no letters."


def _replay_text(report: ReplayReport) -> Iterator[Block]:
    done = "would be sent" if report.is_dry_run else "sent"
    for row in report.replayed:
        yield f"{counted(row.records, 'record')} {done} back to {shown(row.topic)}."
    if not report.replayed:
        yield "There is no letter to replay."
    if report.already_replayed:
        yield f"{counted(report.already_replayed, 'letter')} replayed before."
    for refused in report.refused:
        yield f"{counted(refused.letters, 'letter')} refused: {refused.reason}."


def _drop_text(report: DropReport) -> list[Block]:
    what = f"{counted(report.offsets, 'offset')} {'would be ' if report.is_dry_run else ''}dropped"
    return [table(LetterCut, report.partitions), f"{what} from the beginning of {shown(report.topic)}."]


# Over the Kafka protocol: reads and replays the letters of a topic of a cluster. Raises ControlError or an
# error of kafka-python.
#
# A replay is a row of transactions of one transactional id. Each has the records of some letters, and for
# each partition of the dead-letter topic that the letters are from a note of their offsets:
#
#     killed before a commit    the next replay aborts the transaction, and sends its records again
#     killed after a commit     the note is there as soon as the records are
#     two replays at once       the later one fences the former, and reads the notes only then
#
# The notes outlive the letters, whatever the retention of the topic is, because they have later offsets. The
# offsets of a group would expire with `offsets.retention.minutes`.

LETTERS_AT_ONCE: Final = 500
"""The letters that one transaction replays."""
_ENABLED: Final = "errors.deadletterqueue.group.enable"
_DEDUPLICATES: Final = "message.deduplication.enable"
_NAME_HEADERS: Final = tuple(f"message.deduplication.{what}.header" for what in ("name", "sequence", "epoch"))


def find_letters(cluster: Cluster, topic: str, chosen: LetterFilter) -> tuple[Sequence[DeadLetter], int]:
    """Return the letters of a topic that a filter takes, the oldest first, and the number of records that are
    no letters.
    """
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
    return sorted(marked, key=lambda one: (one.timestamp, one.partition, one.offset)), others


def _records(cluster: Cluster, topic: str, chosen: LetterFilter) -> Iterator[Any]:
    from seqgate.gateway.admin.consume import FROM_THE_BEGINNING, Start, read_records  # noqa: PLC0415 - slow

    since = chosen.since_ms
    start = FROM_THE_BEGINNING if since is None else Start("time", since)
    return read_records(
        cluster, topic, partitions=(), start=start, follow=False, committed=True, on_pause=lambda: None
    )


def plan_replay(cluster: Cluster, topic: str, chosen: LetterFilter, limit: int | None) -> ReplayPlan:
    """Return which letters a replay would send back now."""
    counts = {row.name: len(row.partitions) for row in cluster.all_topics() if not row.is_internal}
    return replay_plan(topic, find_letters(cluster, topic, chosen)[0], counts, limit)


def replay_letters(cluster: Cluster, topic: str, chosen: LetterFilter, limit: int | None) -> ReplayReport:
    """Send the records of letters back, those of each transaction and their note, or none of both. Return
    what was sent: letters may be dropped after they were planned.
    """
    from kafka import KafkaProducer  # noqa: PLC0415 - slow to import

    from seqgate.gateway.admin import produce  # noqa: PLC0415
    from seqgate.gateway.admin.remote.cluster import give_up, opened  # noqa: PLC0415

    producer = opened(
        KafkaProducer,
        **cluster.client_settings(),
        transactional_id=f"seqgate-dead-letters-{topic}",
        acks="all",
        enable_idempotence=True,
        linger_ms=produce.LINGER_MS,
        max_request_size=produce.LARGEST_REQUEST_BYTES,
        delivery_timeout_ms=produce.DELIVERY_TIMEOUT_S * 1000,
        allow_auto_create_topics=False,
    )
    is_done = False
    try:
        producer.init_transactions()  # ends what an earlier replay left, so that its notes are readable
        planned = plan_replay(cluster, topic, chosen, limit)
        sent = _replay_all(cluster, producer, planned, chosen)
        is_done = True
    finally:
        if is_done:
            producer.close()
        else:
            give_up(producer)
    return msgspec.structs.replace(planned, letters=sent).report(is_dry_run=False)


def _replay_all(
    cluster: Cluster, producer: Any, planned: ReplayPlan, chosen: LetterFilter
) -> list[DeadLetter]:
    """Replay the planned letters that are still there; return them."""
    from kafka.errors import KafkaError  # noqa: PLC0415 - slow to import

    from seqgate.gateway.admin.remote.cluster import sentence  # noqa: PLC0415

    letters = {(letter.partition, letter.offset): letter for letter in planned.letters}
    names = _name_headers(cluster, {letter.source_topic for letter in planned.letters})
    wanted = (
        (letters[record.partition, record.offset], record)
        for record in _records(cluster, planned.topic, chosen)
        if (record.partition, record.offset) in letters
    )
    done: list[DeadLetter] = []
    while batch := list(itertools.islice(wanted, LETTERS_AT_ONCE)):
        try:
            _replay_batch(producer, planned.topic, batch, names)
        except KafkaError as error:
            raise ControlError(
                f"the replay ended: {sentence(error)}; {len(done):,} letters are replayed, and those from "
                f"{planned.topic}-{batch[0][0].partition}@{batch[0][0].offset} on are not"
            ) from error
        done += [letter for letter, _ in batch]
    return done


def _replay_batch(
    producer: Any, topic: str, batch: Sequence[tuple[DeadLetter, Any]], names: dict[str, set[str]]
) -> None:
    """Write the records of letters and their notes in one transaction. Raises KafkaError."""
    from kafka.errors import BrokerResponseError  # noqa: PLC0415 - slow to import

    from seqgate.gateway.admin.produce import DELIVERY_TIMEOUT_S  # noqa: PLC0415

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
    from seqgate.gateway.admin.configs import described, unreadable  # noqa: PLC0415 - slow to import

    found = described(cluster, "topic", sorted(topics)) if topics else {}
    for topic in topics:
        if topic not in found:
            raise ControlError(unreadable("topic", topic))
    return {topic: {row.name: row.value for row in rows} for topic, rows in found.items()}


# Over the Kafka protocol: drops the oldest letters.


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
    (found,) = cluster.existing_topics([topic])
    if _configs(cluster, [topic])[topic].get(_ENABLED) != "true":  # a mistyped name would delete its records
        raise ControlError(
            f"topic {topic} does not have {_ENABLED}=true, so it is no dead-letter topic; nothing is dropped"
        )
    numbers = range(len(found.partitions))
    if partition is not None and partition not in numbers:
        raise ControlError(f"topic {topic} has no partition {partition}, only 0 to {len(numbers) - 1}")
    places = [(topic, each) for each in (numbers if partition is None else [partition])]
    starts, ends = cluster.starts(places), cluster.ends(places, "read_committed")
    wanted: dict[int, int] = {}
    if before_offset is not None:
        wanted = {each: before_offset for _, each in places}
    elif until_ms is not None:
        at_time = cluster.offsets(places, until_ms, "read_committed")
        wanted = {each: at_time[place] for place in places if at_time[place] >= 0 for each in [place[1]]}
    elif replayed:
        for letter in find_letters(cluster, topic, LetterFilter())[0]:
            if not letter.is_replayed:
                wanted[letter.partition] = min(letter.offset, wanted.get(letter.partition, letter.offset))
    return [
        LetterCut(each, starts[topic, each], min(max(wanted.get(each, end), starts[topic, each]), end))
        for each in (place[1] for place in places)
        for end in [ends[topic, each]]
    ]


def drop_letters(cluster: Cluster, topic: str, cuts: Iterable[LetterCut]) -> None:
    """Delete the records before the new starts of partitions (DeleteRecords)."""
    starts = {row.partition: row.new_start_offset for row in cuts if row.offsets}

    def question(topics: Mapping[str, Sequence[int]]) -> Any:
        rows = [{"partition_index": index, "offset": starts[index]} for index in topics[topic]]
        return cluster.request(21, 2, topics=[{"name": topic, "partitions": rows}])

    cluster.ask_leaders([(topic, partition) for partition in starts], question, is_change=True)
