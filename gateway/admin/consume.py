"""`seqgate consume`: prints the records of a topic."""

from __future__ import annotations

import base64
import contextlib
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from seqgate.gateway.admin.commands import argument, asks, flag, option, stop
from seqgate.gateway.admin.completion import group_names, topic_names
from seqgate.gateway.admin.options import OpenedCluster, cluster
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.tables import shown
from seqgate.gateway.admin.times import time_or_age_ms

if TYPE_CHECKING:
    from seqgate.gateway.admin.remote.cluster import Cluster


# The place from which a command reads a partition. Pure; parsing raises ValueError with a sentence.

BEGINNING: Final = "beginning"
END: Final = "end"
_NUMBER: Final = re.compile(r"-?\d{1,19}", re.ASCII)


class Start(msgspec.Struct, frozen=True):
    """The first record to read: at an offset, a number of records before the end, or at a time."""

    kind: Literal["offset", "last", "time"]
    value: int


FROM_THE_BEGINNING: Final = Start("offset", 0)
FROM_THE_END: Final = Start("last", 0)


def parse_start(text: str) -> Start:
    """Parse `beginning`, `end`, an offset, or -N for the last N records of each partition."""
    if text == BEGINNING:
        return FROM_THE_BEGINNING
    if text == END:
        return FROM_THE_END
    if not _NUMBER.fullmatch(text):
        raise ValueError(
            f"{text!r} is not a place to read from; write {BEGINNING}, {END}, an offset, or -N for the last "
            "N records"
        )
    number = int(text)
    return Start("last", -number) if text.startswith("-") else Start("offset", number)


def first_offset(start: Start, log_start: int, log_end: int, at_time: int | None) -> int:
    """Return the first offset to read; `at_time` is that of the time `start`, None: no record is so late. The
    last records may begin below: not every offset has a record.
    """
    match start.kind:
        case "offset":
            wanted = start.value
        case "last":
            wanted = log_end - start.value
        case "time":
            wanted = log_end if at_time is None else at_time
    return min(max(wanted, log_start), log_end)


@asks(cluster)
def consume(
    opened: OpenedCluster,
    topic: str = argument("TOPIC", "The topic to read.", autocompletion=topic_names),
    start: str | None = option(
        "--from",
        "OFFSET",
        "beginning, end, an offset, or -N for the last N records of each partition. [default: beginning]",
    ),
    since: str | None = option(
        "--since",
        "TIME",
        "From the first record not older: 10m, 2h or 1d ago, 2026-01-31T13:45:00 (local time, or "
        "with Z or +02:00), or milliseconds.",
    ),
    group: str | None = option(
        "--group",
        "GROUP",
        "Read as a member of this group, from its offsets on (without any: from --from), and commit what is "
        "printed.",
        autocompletion=group_names,
    ),
    partitions: list[int] | None = option(
        "--partition", "N", "Only this partition; may be repeated. [default: all]", min=0
    ),
    limit: int | None = option("--limit", "N", "End after N records.", min=1),
    follow: bool = flag("--follow -f", "Wait for further records, until Ctrl-C."),
    uncommitted: bool = flag("--uncommitted", "Also records of open and aborted transactions."),
    fields: str | None = option(
        "--show",
        "FIELDS",
        "What to print of a record: topic, partition, offset, timestamp, key, value, headers. "
        "[default: value]",
    ),
    separator: str | None = option("--separator", "TEXT", "Text between the fields. [default: a tab]"),
    null: str | None = option("--null", "TEXT", "Printed for null. [default: nothing]"),
    as_json: bool = flag("--json", "Print each record as one line of JSON."),
) -> None:
    """Print the records of a topic, and end at the records that are there now.

    Without --group the command belongs to no group and commits nothing. Records of one partition come in
    order. On a terminal, unprintable characters are escaped; elsewhere the bytes of the records are printed
    as they are.

    \b
    For example:
      seqgate consume orders --from -10 --show partition,offset,key,value
      seqgate consume orders --since 10m --json
      seqgate consume orders --from end --follow
      seqgate consume orders --group checks --limit 100
    """  # noqa: D301 - \b keeps the lines of the list apart
    begin = _start(start, since)
    if group is not None and (partitions or begin not in {FROM_THE_BEGINNING, FROM_THE_END}):
        raise stop(
            "--group begins at the offsets of the group; beside it --from may be beginning or end, for a "
            "group without offsets, and --since and --partition can't be given",
            code=2,
        )
    printed = _printer(topic, fields, separator, null, as_json=as_json)
    with opened as reached:
        records = read_records(
            reached,
            topic,
            partitions=sorted(set(partitions or [])),
            start=begin,
            group=group,
            follow=follow,
            committed=not uncommitted,
            on_pause=sys.stdout.flush,
            limit=limit,
        )
        with contextlib.closing(records), _ended_by_ctrl_c(follow=follow):
            for record in records:
                sys.stdout.buffer.write(printed(record))
            sys.stdout.flush()


def _start(start: str | None, since: str | None) -> Start:
    if start is not None and since is not None:
        raise stop("--from and --since exclude each other", code=2)
    try:
        if since is not None:
            return Start("time", time_or_age_ms(since, time.time_ns() // 1_000_000))
        return FROM_THE_BEGINNING if start is None else parse_start(start)
    except ValueError as error:
        raise stop(f"--{'from' if since is None else 'since'}: {error}", code=2) from None


def _printer(
    topic: str, fields: str | None, separator: str | None, null: str | None, *, as_json: bool
) -> Callable[[Any], bytes]:
    if as_json:
        for name, value in (("--show", fields), ("--separator", separator), ("--null", null)):
            if value is not None:
                raise stop(f"{name} is for lines of text, --json prints all of a record; give one", code=2)
        if sys.stdout.isatty():
            return lambda record: _harmless_json(json_line(record, topic))
        return lambda record: json_line(record, topic)
    try:
        wanted = parse_fields("value" if fields is None else fields)
    except ValueError as error:
        raise stop(f"--show: {error}", code=2) from None
    between = "\t" if separator is None else separator.replace("\\t", "\t")
    for_null = (null or "").encode()
    if not sys.stdout.isatty():
        return lambda record: text_line(record, topic, wanted, between.encode(), for_null)
    return lambda record: _harmless(text_line(record, topic, wanted, between.encode(), for_null), between)


def _harmless(line: bytes, separator: str) -> bytes:
    """Escape characters that a terminal would interpret as commands."""
    text = line.decode(errors="backslashreplace").removesuffix("\n")
    cells = text.split(separator) if separator else [text]
    return (separator.join(map(shown, cells)) + "\n").encode()


def _harmless_json(line: bytes) -> bytes:
    """Escape what can't be printed in a line of JSON, which stays the same document."""
    import json  # noqa: PLC0415 - on a terminal only

    text = line.decode().removesuffix("\n")
    safe = (letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)
    return ("".join(safe) + "\n").encode()


@contextlib.contextmanager
def _ended_by_ctrl_c(*, follow: bool) -> Any:
    """End a command that follows with 0 on Ctrl-C, because nothing else ends it."""
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(0 if follow else 130) from None


# A record as a line of JSON or of text.

FIELDS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""The fields that `seqgate consume --show` prints, by name."""


def json_line(record: Any, topic: str) -> bytes:
    """Return a consumed record as one line of JSON."""
    headers = [_pair("value", value, {"name": name}) for name, value in record.headers]
    document: dict[str, Any] = {
        "topic": topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    _pair("key", record.key, document)
    _pair("value", record.value, document)
    document["headers"] = headers
    return msgspec.json.encode(document) + b"\n"


def _pair(name: str, value: bytes | None, document: dict[str, Any]) -> dict[str, Any]:
    """Add bytes to a document under `name` as text, or under `name_base64` where they are no UTF-8."""
    try:
        document[name] = None if value is None else value.decode()
    except UnicodeDecodeError:
        document[f"{name}_base64"] = base64.b64encode(value or b"").decode()
    return document


def text_line(record: Any, topic: str, fields: Sequence[str], separator: bytes, null: bytes) -> bytes:
    """Return the fields of a consumed record as one line of text."""
    return separator.join(_cell(record, topic, name, null) for name in fields) + b"\n"


def _cell(record: Any, topic: str, name: str, null: bytes) -> bytes:
    match name:
        case "topic":
            return topic.encode()
        case "key" | "value":
            content: bytes | None = getattr(record, name)
            return null if content is None else content
        case "headers":
            return b",".join(
                header.encode() + b"=" + (null if value is None else value)
                for header, value in record.headers
            )
        case _:
            return str(getattr(record, name)).encode()


def parse_fields(text: str) -> tuple[str, ...]:
    """Return the fields of `--show`, such as `partition,offset,key,value`."""
    fields = tuple(name.strip() for name in text.split(","))
    for name in fields:
        if name not in FIELDS:
            raise ValueError(f"{name!r} is not one of {', '.join(FIELDS)}")
    return fields


# Over the Kafka protocol: reads the records of a topic of a cluster. Raises ControlError or an error of
# kafka-python.

POLL_MS: Final = 500
UNASSIGNED_S: Final = 4.0
"""Time after which a group that gives no partition is reported; a first rebalance takes three seconds."""
STALL_S: Final = 30.0
"""Time without a record after which a command that knows of more records gives up, unless `--timeout` says
another.
"""


def read_records(
    cluster: Cluster,
    topic: str,
    *,
    partitions: Sequence[int],
    start: Start,
    group: str | None = None,
    follow: bool,
    committed: bool,
    on_pause: Callable[[], None],
    limit: int | None = None,
) -> Generator[Any]:
    """Yield the records from `start` on, to the end that each partition has now, or for ever when the command
    follows; at most `limit`.

    `partitions` empty: all. `group`: read those that a member of this group gets, from the offsets of the
    group on, and commit a record once the next one is asked for. `committed`: leave out records of aborted
    and open transactions. `on_pause` is called whenever all records that have come are yielded, and before a
    commit.
    """
    from kafka import KafkaConsumer, TopicPartition  # noqa: PLC0415 - slow to import

    from seqgate.gateway.admin.remote.cluster import opened  # noqa: PLC0415

    (found,) = cluster.existing_topics([topic])
    count = len(found.partitions)
    for partition in partitions:
        if not 0 <= partition < count:
            raise ControlError(f"topic {topic} has no partition {partition}, only 0 to {count - 1}")
    places = [TopicPartition(topic, partition) for partition in partitions or range(count)]
    first, ends = _span(cluster, places, start, committed=committed)
    consumer = opened(
        KafkaConsumer,
        **cluster.client_settings(),
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="latest" if start == FROM_THE_END else "earliest",
        isolation_level="read_committed" if committed else "read_uncommitted",
        allow_auto_create_topics=False,
    )
    try:
        if start.kind == "last" and start.value:
            first = _last_records(cluster, consumer, start.value, {place: ends[place] for place in places})
        if group is None:
            wanted = places if follow else [place for place in places if first[place] < ends[place]]
            _assign(consumer, {place: first[place] for place in wanted})
            if not wanted:
                return
        else:
            consumer.subscribe([topic])
        # a partition that is added meanwhile ends at 0
        until = None if follow else defaultdict(int, ends)
        yield from _Reading(cluster, consumer, until, on_pause, group, limit).records()
    finally:
        consumer.close(autocommit=False)


def _span(
    cluster: Cluster, places: Sequence[Any], start: Start, *, committed: bool
) -> tuple[dict[Any, int], dict[Any, int]]:
    isolation = "read_committed" if committed else "read_uncommitted"
    starts, ends = cluster.starts(places), cluster.ends(places, isolation)
    at_time = cluster.offsets(places, start.value, isolation) if start.kind == "time" else {}
    first = {}
    for place in places:
        at = at_time.get(place, -1)
        first[place] = first_offset(start, starts[place], ends[place], None if at < 0 else at)
    return first, ends


def _assign(consumer: Any, first: Mapping[Any, int]) -> None:
    consumer.assign(list(first))
    consumer.resume(*first)
    for place, offset in first.items():
        consumer.seek(place, offset)


def _last_records(cluster: Cluster, consumer: Any, number: int, ends: Mapping[Any, int]) -> dict[Any, int]:
    """Return the offsets of the last `number` records of each partition. Markers of transactions, and records
    that are aborted or compacted away, have offsets too: read twice as far below until there are enough.
    """
    starts, first = cluster.starts(ends), dict(ends)
    found: dict[Any, list[int]] = {place: [] for place in ends}
    span = number
    while few := [place for place in ends if first[place] > starts[place] and len(found[place]) < number]:
        until = {place: first[place] for place in few}
        first |= {place: max(until[place] - span, starts[place]) for place in few}
        _assign(consumer, {place: first[place] for place in few})
        newer = {place: found[place] for place in few}
        found |= {place: [] for place in few}
        for record in _Reading(cluster, consumer, until, lambda: None, None, None).records():
            found[record.topic, record.partition].append(record.offset)
        for place in few:
            found[place] += newer[place]
        span *= 2
    return {place: found[place][-number] if len(found[place]) >= number else starts[place] for place in ends}


class _Reading:
    """Reads what is assigned to a consumer, up to `ends`, or for ever without."""

    def __init__(
        self,
        cluster: Cluster,
        consumer: Any,
        ends: Mapping[Any, int] | None,
        on_pause: Callable[[], None],
        group: str | None,
        limit: int | None,
    ) -> None:
        self._watch = cluster.watch
        self._timeout_s = cluster.timeout_s
        self._consumer = consumer
        self._ends = ends
        self._on_pause = on_pause
        self._group = group
        self._left = limit
        self._read: dict[Any, int] = {}
        self._committed: dict[Any, int] = {}
        self._beyond: set[Any] = set()
        """Partitions in which the group began beyond the end."""

    def records(self) -> Generator[Any]:
        """Yield the records, and commit those that the reader was done with when it stops: not the last one,
        whose output may have been cut off.
        """
        try:
            yield from self._records()
        except (GeneratorExit, KeyboardInterrupt):
            self._pause()
            raise

    def _records(self) -> Generator[Any]:
        before: dict[Any, int] = {}
        last_progress = time.monotonic()
        while True:
            for place, batch in self._consumer.poll(timeout_ms=POLL_MS).items():
                for record in batch:
                    if self._ends is None or record.offset < self._ends[place]:
                        yield record
                        self._read[place] = record.offset + 1
                        if self._left is not None:
                            self._left -= 1
                        if self._left == 0:
                            self._pause()
                            return
            assigned = self._consumer.assignment()
            now = {place: self._consumer.position(place, timeout_ms=POLL_MS) for place in assigned}
            # Control records of transactions are read, too, and not yielded.
            past = {place: at for place, at in now.items() if at is not None}
            is_waiting = not assigned and time.monotonic() - last_progress > UNASSIGNED_S
            self._note_group(is_waiting=is_waiting)
            if past != before:
                before, last_progress = past, time.monotonic()
            self._read = {place: at for place, at in self._read.items() if place in assigned} | {
                place: until
                for place, at in past.items()
                if (until := self._to_commit(place, at)) is not None
            }
            self._pause()
            self._check_stall(time.monotonic() - last_progress)
            if self._ends is not None:
                done = {place for place, at in past.items() if at >= self._ends[place]}
                self._consumer.pause(*done)
                if assigned and done >= assigned:
                    return

    def _to_commit(self, place: Any, position: int) -> int | None:
        """Return the offset to commit at a position; None: the group began beyond the end, at an offset that
        it has committed, and a commit of the end would take it back.
        """
        if self._ends is None or position <= self._ends[place]:
            return position
        if place in self._read:
            return self._ends[place]
        if self._group is not None and place not in self._beyond:
            if self._consumer.committed(place) is None:
                return self._ends[place]
            self._beyond.add(place)
        return None

    def _pause(self) -> None:
        """Print what was read, then commit it."""
        from kafka.structs import OffsetAndMetadata  # noqa: PLC0415 - slow to import

        self._on_pause()
        new = {place: at for place, at in self._read.items() if self._committed.get(place) != at}
        if self._group is not None and new:
            self._consumer.commit({place: OffsetAndMetadata(at, "", -1) for place, at in new.items()})
            self._committed |= new

    def _note_group(self, *, is_waiting: bool) -> None:
        if self._group is not None:
            name = f"group {self._group}"
            if is_waiting:
                self._watch.begins("members", name, f"{name} gives no partition to this member")
            else:
                self._watch.ends("members", name)

    def _check_stall(self, stalled_s: float) -> None:
        """End a command that waits in vain: to the end for records, and otherwise for a lost broker."""
        if self._ends is None:
            if self._timeout_s is not None and self._watch.lasts_s > self._timeout_s:
                raise ControlError(f"gave up after {self._timeout_s:g} s: {self._watch.trouble}")
            return
        limit_s = self._timeout_s or STALL_S
        if stalled_s > limit_s:
            reason = self._watch.trouble
            raise ControlError(
                f"no record came for {limit_s:g} s, although the partitions have more"
                + (f": {reason}" if reason else "")
            )
