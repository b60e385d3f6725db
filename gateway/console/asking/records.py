"""The pages of a topic's records: which records a person wants to see, and at which offsets a page lies. A
page begins at positions, offsets by partition, and shows what follows them; or it ends before positions.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.types import TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from seqgate.gateway.admin.remote.broker import ask_broker
from seqgate.gateway.admin.remote.cluster import Cluster, refusal
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.tables import counted
from seqgate.gateway.console.asking.topics import TopicPlaces, known_offsets, partition_figures
from seqgate.gateway.regular_expressions import pattern_of
from seqgate.log import CorruptRecord, LogError
from seqgate.log.format.record_batch import MAGIC, BatchHeader, crc_matches, whole_batches
from seqgate.log.format.records import iterate_records, read_end_marker

ANYWHERE: Final = "anywhere"
PLACES: Final = (ANYWHERE, "key", "value", "headers")
MOST_SEARCHED: Final = 1 << 20
"""Bytes of one content that are searched; what follows is not."""
LONGEST_FILTER: Final = 500


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """A text to find in records. `matches` None means that every record matches."""

    matches: Callable[[str], bool] | None = None
    place: str = ANYWHERE
    markers: bool = False

    def accepts(self, record: ReadRecord) -> bool:
        if record.marker is not None:
            return self.markers and self.matches is None
        if self.matches is None:
            return True
        return any(self.matches(text) for text in self._texts(record))

    def _texts(self, record: ReadRecord) -> Iterator[str]:
        if self.place in {ANYWHERE, "key"} and record.key is not None:
            yield _text(record.key)
        if self.place in {ANYWHERE, "value"} and record.value is not None:
            yield _text(record.value)
        if self.place in {ANYWHERE, "headers"}:
            for name, value in record.headers:
                yield f"{name}: {_text(value or b'')}"


def _text(content: bytes) -> str:
    return content[:MOST_SEARCHED].decode(errors="replace")


def record_filter(text: str, place: str, *, is_regex: bool, markers: bool) -> RecordFilter:
    """Return the filter for a text, or for a regular expression, which takes linear time whatever it is."""
    if place not in PLACES:
        raise ControlError(f"the filter searches one of {', '.join(PLACES)}, not {place[:40]}")
    if len(text) > LONGEST_FILTER:
        raise ControlError(f"a filter has at most {LONGEST_FILTER} letters, not {len(text)}")
    if not text:
        return RecordFilter(None, place, markers)
    if not is_regex:
        wanted = text.lower()
        return RecordFilter(lambda found: wanted in found.lower(), place, markers)
    try:
        pattern = pattern_of(text)
    except ValueError as error:
        raise ControlError(f"the regular expression can't be used: {error}") from None
    return RecordFilter(lambda found: pattern.search(found) is not None, place, markers)


MOST_PARTITIONS: Final = 32
"""Partitions that one page reads; a person names others."""
SEARCHED: Final = 5_000
"""How many offsets of each partition one page reads when it searches for a text from the end."""
STEP_SEARCHED: Final = 1_000
"""How many offsets of each partition one step of a search reads from the end."""
STEP_SECONDS: Final = 1.0
"""The time after which a step of a search that goes forward ends; the next step resumes there."""
LONGEST_KEPT: Final = 16 << 10
"""Bytes that a search keeps of a key, a value or a header; of longer ones it keeps the beginning."""
MOST_SECONDS: Final = 8.0
_LONGEST_POSITIONS: Final = 2_000
_MOST_NAMED: Final = 10
"""Partitions that a sentence names; it counts the others."""


class From(StrEnum):
    """The place at which a page of records begins; with BEFORE and NEWEST that at which it ends."""

    NEWEST = "newest"
    OLDEST = "oldest"
    OFFSET = "offset"
    TIME = "time"
    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Wish:
    """The wished records: `at` is an offset or a time in ms, `positions` the offsets for BEFORE and AFTER.

    `is_step`: the page is one of many short ones, of a search that shows its hits as they come.
    """

    start: From = From.NEWEST
    at: int = 0
    positions: Mapping[int, int] | None = None
    partition: int | None = None
    rows: int = 50
    committed: bool = False
    is_step: bool = False
    longest_kept: int = LONGEST_KEPT

    @property
    def is_backward(self) -> bool:
        return self.start in {From.NEWEST, From.BEFORE}

    @property
    def searched(self) -> int:
        """The offsets of each partition that a search for a text reads from the end."""
        return STEP_SEARCHED if self.is_step else SEARCHED


@dataclass(frozen=True, slots=True)
class RecordPage:
    """A page of records. `newer` and `older` are the positions of its neighbours; None: there is none. `left`
    counts the offsets that follow the page in its direction.
    """

    records: Sequence[Kept]
    found: SearchResult
    newer: Mapping[int, int] | None
    older: Mapping[int, int] | None
    left_out: int
    is_newest_first: bool
    left: int

    @property
    def following(self) -> Mapping[int, int] | None:
        """The positions at which the page after this one begins, or ends; None after the last page."""
        return self.older if self.is_newest_first else self.newer


def record_page(cluster: Cluster, topic: TopicPlaces, wish: Wish, wanted: RecordFilter) -> RecordPage:
    """Return the records of a page. Raises ControlError."""
    partitions, left_out = partitions_to_read(topic, wish.partition, wish.positions)
    starts, ends = known_offsets(cluster, topic.name, partitions)
    is_backward = wish.is_backward
    if is_backward:
        spans = _spans_back(cluster, topic, wish, wanted, starts, ends)
    else:
        spans = _spans_on(cluster, topic, wish, starts, ends)
    search = Search(
        topic,
        spans,
        wanted,
        wish.searched if is_backward else wish.rows,
        wish.committed,
        wish.longest_kept,
        STEP_SECONDS if wish.is_step and not is_backward else MOST_SECONDS,
    )
    found = search.run(cluster)
    while is_backward and found.stopped is not None:
        # The rest of the spans is the newest part of them: begin later, and leave more to the older pages.
        spans = _narrowed(spans, found.positions)
        found = replace(search, spans=spans).run(cluster)
    if wish.partition is None:
        found.problems[:0] = without_leader(topic.unled)
    ordered = sorted(found.records, key=_order(spans), reverse=is_backward)
    older = {partition: span.start for partition, span in spans.items()}
    newer = dict(found.positions)
    if is_backward:
        newer = {partition: span.stop for partition, span in spans.items()}
    for kept in ordered[wish.rows :]:
        partition, offset = kept.record.partition, kept.record.offset
        if is_backward:
            older[partition] = max(older[partition], offset + 1)
        else:
            newer[partition] = min(newer[partition], offset)
    return RecordPage(
        ordered[: wish.rows],
        found,
        newer if any(newer[partition] < ends[partition] for partition in newer) else None,
        older if any(older[partition] > starts[partition] for partition in older) else None,
        left_out,
        is_backward,
        sum(
            older[partition] - starts[partition] if is_backward else ends[partition] - newer[partition]
            for partition in spans
        ),
    )


def _narrowed(spans: Mapping[int, range], reached: Mapping[int, int]) -> dict[int, range]:
    """Return the ends of spans of which a search reached only positions: half as many offsets as it read."""
    narrowed = {}
    for partition, span in spans.items():
        read = reached[partition] - span.start
        first = span.start if reached[partition] >= span.stop else span.stop - (read + 1) // 2
        narrowed[partition] = range(first, span.stop)
    return narrowed


def partitions_to_read(
    topic: TopicPlaces, partition: int | None, positions: Mapping[int, int] | None = None
) -> tuple[list[int], int]:
    """Return the partitions to read, and how many that have a leader are left out. Raises ControlError."""
    led = topic.led
    if partition is not None:
        if partition not in {place.partition for place in topic.partitions}:
            raise ControlError(f"topic {topic.name} has no partition {partition}")
        if partition not in led:
            raise ControlError(f"partition {partition} of topic {topic.name} has no leader now")
        return [partition], 0
    if positions is not None:
        led = [each for each in led if each in positions]
    return led[:MOST_PARTITIONS], max(0, len(led) - MOST_PARTITIONS)


def without_leader(partitions: Sequence[int]) -> list[str]:
    """Return a sentence about partitions that no broker leads; none without such partitions."""
    if not partitions:
        return []
    more = len(partitions) - _MOST_NAMED
    named = ", ".join(map(str, partitions[:_MOST_NAMED])) + (f" and {more:,} more" if more > 0 else "")
    return [f"Records of {counted(len(partitions), 'partition')} without a leader are missing: {named}."]


def _spans_back(
    cluster: Cluster,
    topic: TopicPlaces,
    wish: Wish,
    wanted: RecordFilter,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
) -> dict[int, range]:
    """Return the offsets to search for a page that ends before positions, or with the newest records: fewer
    where records are large.
    """
    given = wish.positions or {}
    many = wish.searched if wanted.matches is not None else wish.rows
    figures = partition_figures(
        cluster, topic, [place for place in topic.partitions if place.partition in ends]
    )
    budget = MOST_BYTES // max(1, len(figures)) // 2
    spans = {}
    for partition, log_end in ends.items():
        figure = figures[partition]
        used = (figure.log_end_offset or 0) - (figure.log_start_offset or 0)
        average = (figure.size_bytes or 0) // max(1, used)
        back = max(1, min(many, budget // max(1, average)))
        end = min(given.get(partition, log_end), log_end)
        spans[partition] = range(max(starts[partition], end - back), end)
    return spans


def _spans_on(
    cluster: Cluster, topic: TopicPlaces, wish: Wish, starts: Mapping[int, int], ends: Mapping[int, int]
) -> dict[int, range]:
    """Return the offsets to search for a page that begins somewhere."""
    first = starts
    if wish.start is From.OFFSET:
        first = dict.fromkeys(starts, wish.at)
    elif wish.start is From.AFTER:
        first = {**ends, **(wish.positions or {})}
    elif wish.start is From.TIME:
        found = cluster.offsets([(topic.name, partition) for partition in ends], wish.at)
        # the log end stands for a time after the last record
        first = {**ends, **{partition: offset for (_, partition), offset in found.items() if offset >= 0}}
    return {
        partition: range(min(max(first[partition], starts[partition]), end), end)
        for partition, end in ends.items()
    }


def _order(spans: Mapping[int, range]) -> Callable[[Kept], tuple[int, int, int]]:
    """Return the order of records: by offset in one partition, by time among several."""
    is_one = len(spans) == 1

    def place(kept: Kept) -> tuple[int, int, int]:
        record = kept.record
        return 0 if is_one else record.time_ms, record.offset, record.partition

    return place


def written_positions(positions: Mapping[int, int]) -> str:
    """Return positions as they stand in an address: `0:120,1:7`."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))


def read_positions(text: str) -> dict[int, int]:
    """Return the positions of an address. Raises ControlError."""
    if len(text) > _LONGEST_POSITIONS:
        raise ControlError("the positions of this link are too long")
    return dict(_position(part) for part in filter(None, text.split(",")))


def _position(part: str) -> tuple[int, int]:
    partition, colon, offset = part.partition(":")
    if not (
        colon and partition.isascii() and partition.isdecimal() and offset.isascii() and offset.isdecimal()
    ):
        raise ControlError(f"{part[:40]!r} is no position; a position is PARTITION:OFFSET")
    if len(partition) > 9 or len(offset) > 18:
        raise ControlError(f"{part[:40]!r} is no position; its numbers are too large")
    return int(partition), int(offset)


# Finds the records for one page: from an offset or a time on, or the newest. Bounded in time, bytes and
# records.

MOST_BYTES: Final = 64 << 20
"""Bytes that a search reads; after more it ends with what it has found."""
SEARCHES: Final = 3
"""Searches that run at a time; each may hold a record of any size. Others wait."""
_TURNS: Final = threading.BoundedSemaphore(SEARCHES)


class Kept:
    """A record of which long contents are kept in part only, with their whole sizes (None for null)."""

    __slots__ = ("key_bytes", "record", "value_bytes")

    def __init__(self, record: ReadRecord, longest: int) -> None:
        """Keep a record with at most `longest` bytes of key and value."""
        self.key_bytes = None if record.key is None else len(record.key)
        self.value_bytes = None if record.value is None else len(record.value)
        key = record.key if record.key is None else record.key[:longest]
        value = record.value if record.value is None else record.value[:longest]
        headers = tuple(
            (name, None if content is None else content[:longest]) for name, content in record.headers
        )
        self.record = record._replace(key=key, value=value, headers=headers)

    @property
    def is_key_cut(self) -> bool:
        """Whether only the beginning of the key is kept."""
        return self.record.key is not None and len(self.record.key) != self.key_bytes

    @property
    def is_value_cut(self) -> bool:
        """Whether only the beginning of the value is kept."""
        return self.record.value is not None and len(self.record.value) != self.value_bytes


@dataclass(slots=True)
class SearchResult:
    """The records of a search. `positions` are the offsets after it; `stopped`: why it ended early."""

    records: list[Kept] = field(default_factory=list)
    positions: dict[int, int] = field(default_factory=dict)
    searched: int = 0
    size_bytes: int = 0
    stopped: str | None = None
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Search:
    """A search in some offsets of a topic. It ends when each partition has `most` matches, or at a bound."""

    topic: TopicPlaces
    spans: Mapping[int, range]
    wanted: RecordFilter
    most: int
    committed: bool = False
    longest_kept: int = LONGEST_KEPT
    seconds: float = MOST_SECONDS

    def run(self, cluster: Cluster) -> SearchResult:
        """Return what the spans hold. Raises ControlError."""
        with _TURNS:
            return self._run(cluster)

    def _run(self, cluster: Cluster) -> SearchResult:
        found = SearchResult(positions={partition: span.start for partition, span in self.spans.items()})
        matches = dict.fromkeys(self.spans, 0)
        deadline = time.monotonic() + self.seconds
        left = {partition for partition, span in self.spans.items() if span}
        while left:
            found.stopped = self._bound(found, deadline)
            if found.stopped is not None:
                break
            stretches = fetch(
                cluster,
                self.topic,
                {partition: found.positions[partition] for partition in left},
                FetchLimits(),
                committed=self.committed,
            )
            left &= stretches.keys()
            came = any(stretch.next_offset > stretch.position for stretch in stretches.values())
            for partition, stretch in stretches.items():
                matches[partition] += self._take(found, partition, stretch, self.most - matches[partition])
                is_done = not came or self._is_done(found, partition, stretch)
                if is_done or matches[partition] >= self.most:
                    left.discard(partition)
        return found

    def _take(self, found: SearchResult, partition: int, stretch: BatchStretch, room: int) -> int:
        """Keep the matches of a stretch, at most `room`; return their number."""
        taken = 0
        for record in stretch.records():
            if record.offset >= self.spans[partition].stop:
                break
            found.searched += 1
            found.size_bytes += len(record.key or b"") + len(record.value or b"")
            if self.wanted.accepts(record):
                found.records.append(Kept(record, self.longest_kept))
                taken += 1
            if taken >= room or found.size_bytes >= MOST_BYTES:
                found.positions[partition] = record.offset + 1
                found.problems += stretch.problems
                return taken
        found.problems += stretch.problems
        found.positions[partition] = max(found.positions[partition], stretch.next_offset)
        return taken

    def _is_done(self, found: SearchResult, partition: int, stretch: BatchStretch) -> bool:
        """Return whether a partition has no more for this search. One of which nothing came, because others
        filled the answer, has its turn later.
        """
        position = found.positions[partition]
        return position >= self.spans[partition].stop or position >= stretch.end_offset

    def _bound(self, found: SearchResult, deadline: float) -> str | None:
        if found.size_bytes >= MOST_BYTES:
            return f"The search ended after {MOST_BYTES >> 20} MiB."
        if time.monotonic() >= deadline:
            return f"The search ended after {self.seconds:g} s."
        return None


# Fetches records with one request for each leader, without a group. kafka-python's consumer hides what a
# batch says about its producer, and takes longer to start than to read.

TIMEOUT_S: Final = 20.0
PLAIN_BYTES: Final = 128 << 20
"""The largest plain content of a compressed batch; a larger one is reported as unreadable."""
_COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


class ReadRecord(NamedTuple):
    """A record and its batch's producer. `marker` is commit or abort at the end of a transaction."""

    partition: int
    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    producer_id: int
    producer_epoch: int
    sequence: int
    leader_epoch: int
    is_transactional: bool
    is_log_append_time: bool
    compression: str
    marker: str | None = None


@dataclass(slots=True)
class BatchStretch:
    """The batches of one partition in one answer. `problems` tell of batches that can't be read."""

    partition: int
    position: int
    next_offset: int
    end_offset: int
    batches: list[tuple[BatchHeader, memoryview]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def records(self) -> Iterator[ReadRecord]:
        """Yield the records, one plain batch at a time: a few compressed bytes can hold very many."""
        for header, batch in self.batches:
            try:
                for record in _decoded(self.partition, header, batch):
                    if record.offset >= self.position:
                        yield record
            except LogError as error:
                self.problems.append(
                    f"offset {header.base_offset} of partition {self.partition} is unreadable: {error}"
                )


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The bounds of one fetch. A first batch that is larger comes whole all the same (KIP-74)."""

    answer_bytes: int = 8 << 20
    partition_bytes: int = 2 << 20
    wait_ms: int = 0


def fetch(
    cluster: Cluster,
    topic: TopicPlaces,
    positions: Mapping[int, int],
    limits: FetchLimits,
    *,
    committed: bool,
) -> dict[int, BatchStretch]:
    """Return what follows `positions`, by partition, without partitions that have no leader; `committed`
    leaves out records of open and aborted transactions.
    """
    found: dict[int, BatchStretch] = {}
    for leader, partitions in topic.by_leader(positions).items():
        wanted = tuple(
            FetchPartition(
                partition=i32(partition),
                fetch_offset=i64(positions[partition]),
                partition_max_bytes=i32(limits.partition_bytes),
            )
            for partition in partitions
        )
        request = FetchRequest(
            max_wait=i32Timedelta.parse(dt.timedelta(milliseconds=limits.wait_ms)),
            min_bytes=i32(1),
            max_bytes=i32(limits.answer_bytes),
            isolation_level=i8(1 if committed else 0),
            topics=(FetchTopic(topic=TopicName(topic.name), partitions=wanted),),
            forgotten_topics_data=(),
        )
        answer = ask_broker(cluster.reached.other(*leader), request, timeout_s=TIMEOUT_S)
        for row in (row for one in answer.responses for row in one.partitions):
            partition = int(row.partition_index)
            found[partition] = _stretch(partition, positions[partition], row, committed=committed)
    return found


def _stretch(partition: int, position: int, row: Any, *, committed: bool) -> BatchStretch:
    stretch = BatchStretch(partition, position, next_offset=position, end_offset=position)
    refused = refusal(row.error_code)
    if refused is not None:
        stretch.problems.append(f"partition {partition} can't be read: {refused}")
        return stretch
    stretch.end_offset = int(row.last_stable_offset if committed else row.high_watermark)
    data = memoryview(row.records or b"")
    aborted = _Aborted(row.aborted_transactions or ()) if committed else None
    for start, header in whole_batches(data):
        batch = data[start : start + header.size_bytes]
        stretch.next_offset = header.base_offset + 1
        if header.magic != MAGIC:
            stretch.problems.append(
                f"partition {partition} has records in an old format at offset {header.base_offset}"
            )
            continue
        stretch.next_offset = header.last_offset + 1
        if aborted is None or not aborted.hides(header, batch):
            stretch.batches.append((header, batch))
    return stretch


def _decoded(partition: int, header: BatchHeader, batch: memoryview) -> Iterator[ReadRecord]:
    """Yield the records of a batch. Raises LogError on damage."""
    marker = read_end_marker(batch) if header.is_control else None
    if not crc_matches(header, batch):
        raise CorruptRecord("its checksum is wrong")
    for record in iterate_records(batch, limit_bytes=PLAIN_BYTES):
        sequence = header.base_sequence
        if sequence >= 0:
            sequence = (sequence + record.offset - header.base_offset) & 0x7FFFFFFF
        yield ReadRecord(
            partition=partition,
            offset=record.offset,
            time_ms=record.timestamp,
            key=record.key,
            value=record.value,
            headers=record.headers,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            sequence=sequence,
            leader_epoch=header.partition_leader_epoch,
            is_transactional=header.is_transactional,
            is_log_append_time=header.is_log_append_time,
            compression=_COMPRESSIONS[header.compression],
            marker=None if marker is None else "commit" if marker.is_commit else "abort",
        )


class _Aborted:
    """The aborted transactions of a stretch, as a consumer of committed records skips them."""

    def __init__(self, transactions: Sequence[Any]) -> None:
        self._coming = sorted(transactions, key=lambda row: int(row.first_offset), reverse=True)
        self._open: set[int] = set()

    def hides(self, header: BatchHeader, batch: memoryview) -> bool:
        """Return whether a consumer of committed records does not get a batch."""
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            self._open.add(int(self._coming.pop().producer_id))
        if header.is_control:
            marker = read_end_marker(batch)
            if marker is not None and not marker.is_commit:
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open
