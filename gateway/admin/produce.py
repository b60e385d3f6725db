"""`seqgate produce`: writes lines of text or JSON to a topic."""

from __future__ import annotations

import base64
import binascii
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal

import msgspec

from seqgate.gateway.admin.commands import Output, argument, asks, flag, option, stop
from seqgate.gateway.admin.completion import topic_names
from seqgate.gateway.admin.options import OpenedCluster, cluster, parsed_or_exit_2
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.tables import counted, shown

if TYPE_CHECKING:
    from seqgate.gateway.admin.remote.cluster import Cluster

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]


@asks(cluster)
def produce(
    opened: OpenedCluster,
    topic: str = argument("TOPIC", "The topic to write to.", autocompletion=topic_names),
    file: Path | None = option(
        "--file",
        "FILE",
        "Read the lines from this file. [default: standard input]",
        exists=True,
        dir_okay=False,
    ),
    from_json: bool = flag(
        "--from-json", "Each line is a record in JSON, as `seqgate consume --json` prints it."
    ),
    key: str | None = option("--key", "KEY", "The key of every record."),
    key_separator: str | None = option(
        "--key-separator", "TEXT", "Each line is a key, this text, and a value. Write \\t for a tab."
    ),
    headers: list[str] | None = option(
        "--header", "NAME=VALUE", "A header of every record; may be repeated."
    ),
    partition: int | None = option(
        "--partition", "N", "The partition of every record. [default: by the key, or any]", min=0
    ),
    keep_partitions: bool = flag(
        "--keep-partitions", "With --from-json: send each record to the partition of its line."
    ),
    null: str | None = option(
        "--null",
        "TEXT",
        "A value that equals this text is sent as null, which deletes its key in a compacted topic.",
    ),
    compression: Codec = option(
        "--compression", "CODEC", "none, gzip, snappy, lz4 or zstd. [default: none]", default="none"
    ),
    create: bool = flag("--create", "Create the topic, with the cluster's defaults, when it is missing."),
) -> Output:
    """Write each line of standard input or a file as a record.

    The records of one command are sent in order by an idempotent producer, so each is stored exactly once;
    the command ends when the cluster has acknowledged all of them. It stops at the first record that is
    refused. On a terminal, Ctrl-D ends the input, and each line is acknowledged before the next one is read.

    With --from-json a line has the fields value, key, headers (a list, or an object of names and values),
    timestamp (ms), and partition with --keep-partitions; value_base64 and key_base64 for bytes that are not
    text. A value that is no string is sent as JSON. A header that is null can't be sent.

    \b
    For example:
      echo hello | seqgate produce greetings --create
      seqgate produce orders --key-separator : --header source=import --file orders.txt
      seqgate consume orders --json | seqgate produce copy --from-json
    """  # noqa: D301 - \b keeps the lines of the list apart
    if key is not None and key_separator is not None:
        raise stop("--key and --key-separator exclude each other", code=2)
    if key_separator == "":
        raise stop("--key-separator is empty", code=2)
    for name, value in (("--key-separator", key_separator), ("--null", null)):
        if from_json and value is not None:
            raise stop(
                f"{name} is for lines of text, --from-json for lines of JSON; give one of them", code=2
            )
    if keep_partitions and not from_json:
        raise stop("--keep-partitions needs --from-json", code=2)
    defaults = LineFormat(
        key_separator=None if key_separator is None else key_separator.replace("\\t", "\t").encode(),
        key=None if key is None else key.encode(),
        headers=tuple(parsed_or_exit_2(parse_header, text, "--header") for text in headers or []),
        partition=partition,
        null=None if null is None else null.encode(),
        keeps_partitions=keep_partitions,
    )
    parse = (lambda line: parse_json(line, defaults)) if from_json else defaults.parse
    with opened as reached, sys.stdin.buffer if file is None else file.open("rb") as lines:
        if create:
            from seqgate.gateway.admin.topics import create_missing  # noqa: PLC0415 - with --create

            create_missing(reached, topic)
        is_typed = lines.isatty()
        if is_typed:
            print(f"seqgate: each line is a record of {shown(topic)}; Ctrl-D ends", file=sys.stderr)
        try:
            report = send_records(
                reached,
                topic,
                _records(lines, parse),
                compression=None if compression == "none" else compression,
                at_once=is_typed,
            )
        except Interrupted as interrupted:
            unknown = f" {counted(interrupted.unknown, 'record')} may be stored: not acknowledged yet."
            sentence = f"interrupted. {_stored(interrupted.report)}{unknown if interrupted.unknown else ''}"
            raise stop(sentence, code=130) from None
    return Output(report, [_stored(report)])


def _records(lines: BinaryIO, parse: Callable[[bytes], ProducedRecord]) -> Iterator[ProducedRecord]:
    for number, line in enumerate(lines, start=1):
        try:
            yield parse(line.removesuffix(b"\n").removesuffix(b"\r"))
        except ValueError as error:
            raise ControlError(f"line {number}: {error}") from None


def _stored(report: ProducedReport) -> str:
    places = [
        f"partition {row.partition} from offset {row.first_offset} to {row.last_offset}"
        for row in report.partitions
    ]
    where = f": {', '.join(places)}" if places else ""
    return f"{counted(report.records, 'record')} stored in {shown(report.topic)}{where}."


# The record that a line of text or of JSON stands for. Raises ValueError, a sentence.


class ProducedRecord(msgspec.Struct, frozen=True):
    """A record to send; `partition` None: by the key, or any; `timestamp` None: now."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes]] = msgspec.field(default_factory=list)
    partition: int | None = None
    timestamp: int | None = None


def parse_header(text: str) -> tuple[str, bytes]:
    """Parse NAME=VALUE as a header. Spaces belong to the name: a record may have headers of any name."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError(f"{text!r} must have the form NAME=VALUE")
    return name, value.encode()


class LineFormat(msgspec.Struct, frozen=True):
    """The meaning of a line of plain text: its key ends at `key_separator`; None: the whole line is the
    value.

    `key`, `headers` and `partition` are those of every line. A value that equals `null` is sent as null.
    `keeps_partitions`: a line of JSON names its partition.
    """

    key_separator: bytes | None = None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None
    null: bytes | None = None
    keeps_partitions: bool = False

    def parse(self, line: bytes) -> ProducedRecord:
        """Return the record of one line."""
        key, value = self.key, line
        if self.key_separator is not None:
            key, found, value = line.partition(self.key_separator)
            if not found:
                raise ValueError(f"no key separator {self.key_separator.decode()!r} in the line")
        sent = None if self.null is not None and value == self.null else value
        return ProducedRecord(sent, key, list(self.headers), self.partition)


class JsonHeader(msgspec.Struct, forbid_unknown_fields=True):
    """A header of a record in JSON."""

    name: str
    value: str | None = None
    value_base64: str | None = None


class JsonRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A record in JSON, as `seqgate consume --json` prints it; topic and offset are ignored."""

    value: Any = None
    value_base64: str | None = None
    key: str | None = None
    key_base64: str | None = None
    headers: list[JsonHeader] | dict[str, str | None] = msgspec.field(default_factory=list)
    partition: int | None = None
    timestamp: int | None = None
    topic: str | None = None
    offset: int | None = None


_decoder: Final = msgspec.json.Decoder(JsonRecord)
_LATEST_MS: Final = 2**63 - 1


def parse_json(line: bytes, defaults: LineFormat) -> ProducedRecord:
    """Return the record of one line of JSON; `defaults` has the values of fields that the line lacks."""
    try:
        found = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"the line is not a record in JSON: {error}") from None
    if found.timestamp is not None and abs(found.timestamp) > _LATEST_MS:
        raise ValueError(f"the timestamp {found.timestamp} has more than 64 bits")
    key = _bytes(found.key, found.key_base64, "key")
    headers = found.headers
    if isinstance(headers, dict):
        headers = [JsonHeader(name, value) for name, value in headers.items()]
    return ProducedRecord(
        _bytes(_text(found.value), found.value_base64, "value"),
        defaults.key if key is None else key,
        [*(_header(header) for header in headers), *defaults.headers],
        found.partition if defaults.keeps_partitions and found.partition is not None else defaults.partition,
        found.timestamp,
    )


def _header(header: JsonHeader) -> tuple[str, bytes]:
    value = _bytes(header.value, header.value_base64, "value")
    if value is None:
        raise ValueError(f"the header {header.name} is null, which this command can't send")
    return header.name, value


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _bytes(text: str | None, in_base64: str | None, name: str) -> bytes | None:
    if in_base64 is None:
        return None if text is None else text.encode()
    if text is not None:
        raise ValueError(f"{name} and {name}_base64 exclude each other")
    try:
        return base64.b64decode(in_base64, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{name}_base64 is not base64: {error}") from None


# The JSON output of `seqgate produce --json`.


class ProducedPartition(msgspec.Struct, frozen=True):
    """The records that are stored in one partition, and the offsets of the first and the last."""

    partition: int
    first_offset: int
    last_offset: int
    records: int


class ProducedReport(msgspec.Struct, frozen=True):
    """The records that are stored in a topic."""

    topic: str
    records: int
    partitions: list[ProducedPartition]


# Over the Kafka protocol: writes the records.

LARGEST_REQUEST_BYTES: Final = 100 << 20
"""The producer's own limit, high enough that the cluster decides (message.max.bytes)."""
DELIVERY_TIMEOUT_S: Final = 60
"""Time until a record that is not acknowledged ends the command, unless `--timeout` says another."""
RECORDS_IN_FLIGHT: Final = 10_000
BYTES_IN_FLIGHT: Final = 32 << 20
"""Records, and bytes of them, that wait for acknowledgements; the command reads no input meanwhile."""
LINGER_MS: Final = 5


def send_records(
    cluster: Cluster, topic: str, records: Iterable[ProducedRecord], *, compression: str | None, at_once: bool
) -> ProducedReport:
    """Send records in order, each stored exactly once, and wait for the answers; `at_once`: for each answer
    before the next record is sent. Raises Interrupted on Ctrl-C, ControlError, or errors of kafka-python.
    """
    from kafka import KafkaProducer  # noqa: PLC0415 - slow to import
    from kafka.serializer import Serializer  # noqa: PLC0415

    from seqgate.gateway.admin.remote.cluster import NoTopic, give_up, opened  # noqa: PLC0415 - as above

    Serializer.register(_Nulls)
    try:
        (found,) = cluster.existing_topics([topic])
    except NoTopic as error:
        raise ControlError(f"{error}; --create creates it") from None
    settings = cluster.client_settings()
    timeout_ms = int((cluster.timeout_s or DELIVERY_TIMEOUT_S) * 1000)
    settings["request_timeout_ms"] = min(settings["request_timeout_ms"], timeout_ms - LINGER_MS)
    producer = opened(
        KafkaProducer,
        **settings,
        acks="all",
        enable_idempotence=True,
        compression_type=compression,
        value_serializer=_Nulls(),
        linger_ms=0 if at_once else LINGER_MS,
        max_request_size=LARGEST_REQUEST_BYTES,
        delivery_timeout_ms=timeout_ms,
        max_block_ms=timeout_ms,
        allow_auto_create_topics=False,
    )
    sending = _Sending(cluster, producer, topic, len(found.partitions), at_once=at_once)
    try:
        _send_all(sending, records)
    except KeyboardInterrupt:
        sending.settle(RECORDS_IN_FLIGHT, BYTES_IN_FLIGHT)
        raise Interrupted(sending.report(), len(sending.waiting)) from None
    finally:
        # After an error nothing more is sent.
        if sending.waiting:
            give_up(producer)
        else:
            producer.close()
    return sending.report()


_NULL: Final = object()
"""Stands for a null value, which KafkaProducer refuses without a key, until its checks are over."""


class _Nulls:
    """The serializer of values."""

    def serialize(self, _topic: str, _headers: object, value: object) -> object:
        return None if value is _NULL else value


class Interrupted(KeyboardInterrupt):
    """Ctrl-C ended the command: what is stored, and how many records were sent and not acknowledged."""

    def __init__(self, report: ProducedReport, unknown: int) -> None:
        super().__init__()
        self.report = report
        self.unknown = unknown


def _send_all(sending: _Sending, records: Iterable[ProducedRecord]) -> None:
    given = enumerate(records, start=1)
    while True:
        try:
            sending.is_reading = True
            try:
                number, record = next(given)
            finally:
                sending.is_reading = False
        except StopIteration:
            sending.settle(0, 0)
            return
        except ControlError:
            # The input is wrong here, and the records before are stored all the same.
            sending.settle(0, 0)
            raise
        sending.send(number, record)


class _Sending:
    def __init__(
        self, cluster: Cluster, producer: Any, topic: str, partitions: int, *, at_once: bool
    ) -> None:
        self._watch = cluster.watch
        self._timeout_s = cluster.timeout_s or DELIVERY_TIMEOUT_S
        self._producer = producer
        self._topic = topic
        self._partitions = partitions
        self._at_once = at_once
        self.is_reading = False
        """Whether the command waits for its input, and so does not see that a record failed."""
        self._is_told = False
        self._bytes = 0
        self._stored: dict[int, ProducedPartition] = {}
        self.waiting: deque[tuple[int, int, Any]] = deque()

    def send(self, number: int, record: ProducedRecord) -> None:
        """Send the record of line `number`; first wait while too many records or bytes are unacknowledged."""
        from kafka.errors import KafkaError  # noqa: PLC0415 - slow to import

        if record.partition is not None and not 0 <= record.partition < self._partitions:
            self.settle(0, 0)
            raise self._failed(
                f"record {number} is not stored: topic {self._topic} has no partition {record.partition}, "
                f"only 0 to {self._partitions - 1}"
            )
        size = len(record.key or b"") + len(record.value or b"")
        self.settle(RECORDS_IN_FLIGHT, BYTES_IN_FLIGHT)
        try:
            future = self._producer.send(
                self._topic,
                value=_NULL if record.value is None else record.value,
                key=record.key,
                headers=record.headers,
                partition=record.partition,
                timestamp_ms=record.timestamp,
            )
        except (KafkaError, ValueError, AssertionError, TypeError) as error:
            self.settle(0, 0)
            raise self._failed(self._problem(number, error)) from error
        future.add_errback(partial(self._tell, number))
        self.waiting.append((number, size, future))
        self._bytes += size
        if self._at_once:
            self.settle(0, 0)

    def settle(self, records: int, size_bytes: int) -> None:
        """Take the answers that have come, and wait until at most the given numbers of records and bytes are
        unacknowledged.
        """
        from kafka.errors import KafkaError  # noqa: PLC0415 - slow to import

        while self.waiting:
            number, size, future = self.waiting[0]
            if len(self.waiting) <= records and self._bytes <= size_bytes and not future.is_done:
                return
            try:
                stored = future.get(timeout=self._timeout_s)
            except KafkaError as error:
                raise self._failed(self._problem(number, error)) from error
            self.waiting.popleft()
            self._bytes -= size
            partition, offset = stored.partition, stored.offset
            known = self._stored.get(partition)
            first, count = (offset, 0) if known is None else (known.first_offset, known.records)
            self._stored[partition] = ProducedPartition(partition, first, offset, count + 1)

    def _tell(self, number: int, error: Exception) -> None:
        """Report the first record that fails while the command waits for its input."""
        if self.is_reading and not self._is_told:
            self._is_told = True
            self._watch.say(f"{self._problem(number, error)}; the next line ends the command")

    def _problem(self, number: int, error: Exception) -> str:
        from kafka.errors import KafkaTimeoutError  # noqa: PLC0415 - slow to import

        from seqgate.gateway.admin.remote.cluster import sentence  # noqa: PLC0415 - as above

        if isinstance(error, KafkaTimeoutError):
            reason = self._watch.trouble or sentence(error)
            return f"record {number} is not acknowledged within {self._timeout_s:g} s: {reason}"
        return f"record {number} is not stored: {sentence(error)}"

    def _failed(self, problem: str) -> ControlError:
        stored = sum(row.records for row in self._stored.values())
        verb = "is" if stored == 1 else "are"
        return ControlError(f"{problem}; {stored:,} of the records before it {verb} stored")

    def report(self) -> ProducedReport:
        """Return how many records are stored, and where."""
        rows = [self._stored[partition] for partition in sorted(self._stored)]
        return ProducedReport(self._topic, sum(row.records for row in rows), rows)
