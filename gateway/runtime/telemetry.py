"""The telemetry of the clients that ask this gateway: their subscriptions, their pushes, and the series that
they pushed.

The subscriptions are in the metadata log, so all gateways have the same ones. The clients and their series
are in memory, of this gateway alone: a client talks to one gateway at a time.

A client gets the metrics of all subscriptions that match it, at the shortest of their intervals; a client
that none matches gets no metrics and the default interval. Source: Kafka's
ClientMetricsManager.createClientInstance. Kafka never sends a client an interval above its default of five
minutes; Seqgate sends the interval that was configured.

A client may ask once in its push interval, which counts from its last question and from its last push. It may
push once in its push interval, which counts from its last push. So a push right after the client has asked is
never too early. A terminating push comes at any time, and is the last. A client whose push was refused for
its subscription id or its compression may ask again at once. Source: Kafka's ClientMetricsManager,
ClientMetricsInstance.

A measurement replaces the value of its series, or, as a delta, is added to it: counters and histograms that
clients push as deltas come out cumulative. A delta that ends no later than the one before is a retry of a
push whose answer was lost, and is not added again. A series that its client pushes no more is forgotten after
the lifetime of the client, and so is a client that pushes nothing more. Source: KIP-714.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.config import Config
from seqgate.gateway.config.setting import InvalidValueError
from seqgate.gateway.metadata.image import CLIENT_METRICS_RESOURCE
from seqgate.gateway.metadata.records import ConfigRecord, MetadataRecord
from seqgate.gateway.runtime.loop.machine import Machine, Workers
from seqgate.gateway.runtime.topics.metadata_log import MetadataLog
from seqgate.gateway.tasks import settle
from seqgate.gateway.telemetry.payload import (
    HistogramValue,
    InvalidPayload,
    Measurements,
    Point,
    PushedSeries,
    SeriesKey,
    Value,
    decode,
)
from seqgate.gateway.telemetry.subscriptions import (
    BY_CLIENT_METRICS_NAME,
    FIVE_MINUTES_MS,
    INTERVAL_MS,
    LONGEST_INTERVAL_MS,
    MATCH,
    METRICS,
    SHORTEST_INTERVAL_MS,
    ClientDescription,
    InvalidMatch,
    Patterns,
    is_match,
    parse_match,
)
from seqgate.log import DecompressionLimitReached, LogError
from seqgate.log.format.compression import decompress
from seqgate.seq_validator.checksum import crc32c

logger = logging.getLogger(__name__)


EXPIRE_EVERY_S: Final = 10.0
DECOMPRESSED_FACTOR: Final = 4
"""The metrics of a push may decompress to this many times `telemetry.max.bytes`."""
_RESERVED_IDS: Final = frozenset({uuid.UUID(int=0), uuid.UUID(int=1)})
"""The ids that no client has (Kafka's Uuid.RESERVED)."""


class TelemetryCounters(msgspec.Struct):
    pushes: int = 0
    """Pushes that were accepted."""
    refused: Counter[str] = msgspec.field(default_factory=Counter)
    """Pushes that were refused, by the name of the error in lower case, such as `telemetry_too_large`."""
    dropped_points: int = 0
    """Measurements dropped from accepted pushes: beyond a limit, of kinds not kept, or without a value."""


class Push(msgspec.Struct, frozen=True):
    subscription_id: int
    is_terminating: bool
    compression_type: int
    metrics: bytes


class PushOutcome(msgspec.Struct, frozen=True):
    """The error code of the answer; `busy_s`: seconds that a thread worked on the push."""

    error: ErrorCode
    busy_s: float = 0.0


class Telemetry:
    """Answers the two APIs of KIP-714, and keeps what clients pushed."""

    def __init__(
        self, config: Config, machine: Machine, loop: asyncio.AbstractEventLoop, metadata_log: MetadataLog
    ) -> None:
        self._config = config
        self._machine = machine
        self._image = metadata_log.image
        self._subscriptions = Subscriptions()
        self._instances = Instances()
        self._series = SeriesStore()
        self._decoder = PayloadDecoder(loop, machine)
        self.counters = TelemetryCounters()
        for name in self._image.configured(CLIENT_METRICS_RESOURCE):
            self._take(name)
        metadata_log.add_listener(self._metadata_changed)

    async def _metadata_changed(self, records: Sequence[MetadataRecord]) -> None:
        changed = {
            record.resource_name: None
            for record in records
            if isinstance(record, ConfigRecord) and record.resource_type == CLIENT_METRICS_RESOURCE
        }
        for name in changed:
            self._take(name)

    def _take(self, name: str) -> None:
        self._subscriptions.set(name, self._image.configs(CLIENT_METRICS_RESOURCE, name))

    @property
    def max_bytes(self) -> int:
        return self._config.int("telemetry.max.bytes")

    @property
    def known_clients(self) -> int:
        """The number of clients that have asked or pushed, are connected, and are not expired."""
        return len(self._instances)

    @property
    def series_count(self) -> int:
        return len(self._series)

    def subscription(self, client: ClientDescription) -> ClientSubscription | ErrorCode:
        """Return what the client pushes, or THROTTLING_QUOTA_EXCEEDED when it asks too early."""
        now_ms = self._now_ms()
        instance = self._meet(client, now_ms)
        error = instance.ask(now_ms)
        return instance.choice if error is ErrorCode.none else error

    async def push(self, client: ClientDescription, push: Push) -> PushOutcome:
        if client.client_instance_id in _RESERVED_IDS:
            return self._counted(PushOutcome(ErrorCode.invalid_request))
        now_ms = self._now_ms()
        instance = self._meet(client, now_ms)
        error = instance.push(
            push.subscription_id,
            push.compression_type,
            len(push.metrics),
            now_ms,
            is_terminating=push.is_terminating,
            max_bytes=self.max_bytes,
        )
        if error is not ErrorCode.none or not push.metrics:
            return self._counted(PushOutcome(error))
        return self._counted(await self._take_metrics(instance, push))

    async def _take_metrics(self, instance: ClientInstance, push: Push) -> PushOutcome:
        limits = self._series_limits()
        payload = Payload(
            push.metrics, push.compression_type, DECOMPRESSED_FACTOR * self.max_bytes, limits.of_client
        )
        outcome, busy_s = await self._decoder.decode(payload)
        if not isinstance(outcome, Measurements):
            instance.refuse_content(outcome)
            return PushOutcome(outcome, busy_s)
        dropped = self._series.fold_in(
            instance.description, outcome.points, self._now_ms(), lifetime_ms(instance.choice), limits
        )
        self.counters.dropped_points += dropped + outcome.dropped
        return PushOutcome(ErrorCode.none, busy_s)

    def _series_limits(self) -> SeriesLimits:
        return SeriesLimits(
            self._config.int("seqgate.telemetry.series.max.per.client"),
            self._config.int("seqgate.telemetry.series.max"),
        )

    def _counted(self, outcome: PushOutcome) -> PushOutcome:
        if outcome.error is ErrorCode.none:
            self.counters.pushes += 1
        else:
            self.counters.refused[outcome.error.name] += 1
        return outcome

    def _meet(self, client: ClientDescription, now_ms: float) -> ClientInstance:
        return self._instances.meet(
            client, self._subscriptions, now_ms, self._config.int("seqgate.telemetry.clients.max")
        )

    def _now_ms(self) -> float:
        return self._machine.seconds() * 1000

    def disconnected(self, client_instance_id: uuid.UUID) -> None:
        """Forget the requests of a client whose connection has closed. Its series stay until they expire, so
        that the last values of a client that ends are scraped.
        """
        self._instances.drop(client_instance_id)

    def expire(self) -> None:
        """Forget the clients and series whose lifetime has passed."""
        now_ms = self._now_ms()
        self._instances.expire(now_ms)
        self._series.expire(now_ms)

    def pushed_series(self) -> Iterator[PushedSeries]:
        """Yield each series' newest value, client by client: one name comes several times, in any order."""
        self._series.expire(self._now_ms())
        return iter(self._series)

    def stop(self) -> None:
        """End the thread that decodes pushes; further pushes get THROTTLING_QUOTA_EXCEEDED."""
        self._decoder.stop()


ALL_METRICS: Final = "*"
_SIGN: Final = 1 << 31


class Subscription(msgspec.Struct, frozen=True):
    """Name prefixes of metrics, the interval of pushes (ms), and the clients that are selected."""

    metrics: frozenset[str]
    interval_ms: int
    patterns: Patterns


class ClientSubscription(msgspec.Struct, frozen=True):
    """The metrics that one client must push. `subscription_id` changes when the other two change."""

    subscription_id: int
    requested_metrics: tuple[str, ...]
    push_interval_ms: int


def subscription_of(values: Mapping[str, str]) -> Subscription | None:
    """Return the subscription with these configurations; None when this version refuses a stored value."""
    try:
        interval_ms = _number(values)
        patterns = parse_match(_items(MATCH, values))
        return Subscription(frozenset(_items(METRICS, values)), interval_ms, patterns)
    except (InvalidMatch, InvalidValueError):
        return None


def _items(name: str, values: Mapping[str, str]) -> tuple[str, ...]:
    items = BY_CLIENT_METRICS_NAME[name].parse(values.get(name, ""))
    return items if isinstance(items, tuple) else ()


def _number(values: Mapping[str, str]) -> int:
    text = values.get(INTERVAL_MS)
    number = FIVE_MINUTES_MS if text is None else BY_CLIENT_METRICS_NAME[INTERVAL_MS].parse(text)
    assert isinstance(number, int)
    return min(max(number, SHORTEST_INTERVAL_MS), LONGEST_INTERVAL_MS)


class Subscriptions:
    """All subscriptions by name. `version` grows with each change."""

    def __init__(self) -> None:
        self.version = 0
        self._by_name: dict[str, Subscription] = {}

    def set(self, name: str, values: Mapping[str, str]) -> None:
        """Replace a subscription; one without values is removed."""
        self.version += 1
        subscription = subscription_of(values) if values else None
        if subscription is None:
            self._by_name.pop(name, None)
        else:
            self._by_name[name] = subscription

    def choose(self, client: ClientDescription) -> ClientSubscription:
        matching = [known for known in self._by_name.values() if is_match(known.patterns, client)]
        metrics: frozenset[str] = frozenset().union(*(known.metrics for known in matching))
        requested = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
        interval_ms = min((known.interval_ms for known in matching), default=FIVE_MINUTES_MS)
        return ClientSubscription(_subscription_id(requested, interval_ms, client), requested, interval_ms)


def _subscription_id(requested: tuple[str, ...], interval_ms: int, client: ClientDescription) -> int:
    """Return the CRC-32C of choice and instance id as int32, the same on all gateways of a cluster."""
    content = "\0".join((*requested, str(interval_ms))).encode()
    checksum = crc32c(client.client_instance_id.bytes + content)
    return (checksum ^ _SIGN) - _SIGN


SHORTEST_LIFETIME_MS: Final = 60_000
LIFETIME_INTERVALS: Final = 3
HIGHEST_COMPRESSION_TYPE: Final = 4
_NEVER: Final = float("-inf")
_ASK_AGAIN: Final = frozenset({ErrorCode.unknown_subscription_id, ErrorCode.unsupported_compression_type})
"""The errors after which a client asks for its subscription at once."""


def lifetime_ms(choice: ClientSubscription) -> int:
    """Return the time (ms) without a request after which a client and its series are forgotten."""
    return max(SHORTEST_LIFETIME_MS, LIFETIME_INTERVALS * choice.push_interval_ms)


class ClientInstance(msgspec.Struct, eq=False):
    """One client: its chosen subscription and its last requests. Times are ms of one clock."""

    description: ClientDescription
    choice: ClientSubscription
    version: int
    """The version of the subscriptions from which `choice` was made."""
    expires_ms: float = 0.0
    is_terminating: bool = False
    _last_asked_ms: float = _NEVER
    _last_pushed_ms: float = _NEVER
    _last_error: ErrorCode = ErrorCode.none

    def ask(self, now_ms: float) -> ErrorCode:
        """Judge a request for the subscription: no error, or THROTTLING_QUOTA_EXCEEDED."""
        if now_ms - max(self._last_asked_ms, self._last_pushed_ms) >= self.choice.push_interval_ms:
            self._last_asked_ms = now_ms
        elif self._last_error not in _ASK_AGAIN:
            return ErrorCode.throttling_quota_exceeded
        self._last_error = ErrorCode.none
        return ErrorCode.none

    def push(
        self,
        subscription_id: int,
        compression_type: int,
        metrics_bytes: int,
        now_ms: float,
        *,
        is_terminating: bool,
        max_bytes: int,
    ) -> ErrorCode:
        """Judge a push before its metrics (their size as they arrived) are decoded; return its error."""
        error = ErrorCode.none
        is_due = now_ms - self._last_pushed_ms >= self.choice.push_interval_ms
        if self.is_terminating:
            error = ErrorCode.invalid_request
        elif not is_due and not is_terminating:
            error = ErrorCode.throttling_quota_exceeded
        else:
            if is_due:
                self._last_pushed_ms = now_ms
            if subscription_id != self.choice.subscription_id:
                error = ErrorCode.unknown_subscription_id
            elif not 0 <= compression_type <= HIGHEST_COMPRESSION_TYPE:
                error = ErrorCode.unsupported_compression_type
            elif metrics_bytes > max_bytes:
                error = ErrorCode.telemetry_too_large
        # Kafka, too, takes over the flag of a refused push.
        self.is_terminating = is_terminating
        self._last_error = error
        return error

    def refuse_content(self, error: ErrorCode) -> None:
        self._last_error = error


class Instances:
    """The known clients by client instance id, the least recently active first."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[uuid.UUID, ClientInstance] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, client_instance_id: uuid.UUID) -> bool:
        return client_instance_id in self._by_id

    def meet(
        self, description: ClientDescription, subscriptions: Subscriptions, now_ms: float, most: int
    ) -> ClientInstance:
        """Return the client, and restart its lifetime; beyond `most` the least recent ones are forgotten.
        When the subscriptions changed, a client begins anew, but keeps the description of its first request.
        """
        client_instance_id = description.client_instance_id
        known = self._by_id.get(client_instance_id)
        if known is None or known.version < subscriptions.version:
            described = description if known is None else known.description
            known = ClientInstance(described, subscriptions.choose(described), subscriptions.version)
            self._by_id[client_instance_id] = known
        known.expires_ms = now_ms + lifetime_ms(known.choice)
        self._by_id.move_to_end(client_instance_id)
        while len(self._by_id) > most:
            self._by_id.popitem(last=False)
        return known

    def drop(self, client_instance_id: uuid.UUID) -> None:
        self._by_id.pop(client_instance_id, None)

    def expire(self, now_ms: float) -> None:
        for client_instance_id in [key for key, known in self._by_id.items() if known.expires_ms <= now_ms]:
            del self._by_id[client_instance_id]


MAX_WAITING_BYTES: Final = 32 << 20
"""Bytes of the pushes that wait for the thread; a further push gets THROTTLING_QUOTA_EXCEEDED."""


class Payload(msgspec.Struct, frozen=True):
    content: bytes
    compression_type: int
    max_bytes: int
    max_points: int


class Decoded(NamedTuple):
    """A payload's measurements, or the error that refuses it. `busy_s`: seconds the thread worked."""

    outcome: Measurements | ErrorCode
    busy_s: float


class PayloadDecoder:
    """Decodes payloads in a thread, which the first payload starts, so that the event loop serves other
    requests meanwhile. Call all methods in the event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, machine: Machine) -> None:
        self._loop = loop
        self._machine = machine
        self._workers: Workers[tuple[Payload, asyncio.Future[Decoded]]] | None = None
        self._waiting: set[asyncio.Future[Decoded]] = set()
        self._waiting_bytes = 0
        self._is_stopped = False

    async def decode(self, payload: Payload) -> Decoded:
        """Return the measurements, or INVALID_RECORD, TELEMETRY_TOO_LARGE, or THROTTLING_QUOTA_EXCEEDED when
        too much waits.
        """
        size = len(payload.content)
        if self._is_stopped or self._waiting_bytes + size > MAX_WAITING_BYTES:
            return Decoded(ErrorCode.throttling_quota_exceeded, 0.0)
        if self._workers is None:
            self._workers = self._machine.workers("telemetry", 1, self._work)
        done: asyncio.Future[Decoded] = self._loop.create_future()
        self._waiting.add(done)
        self._waiting_bytes += size
        self._workers.put((payload, done))
        try:
            return await done
        finally:
            self._waiting.discard(done)
            self._waiting_bytes -= size

    def stop(self) -> None:
        """Answer waiting pushes with THROTTLING_QUOTA_EXCEEDED; end the thread after its current push."""
        self._is_stopped = True
        for done in list(self._waiting):
            settle(done, Decoded(ErrorCode.throttling_quota_exceeded, 0.0))
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.stop()

    def _work(self, job: tuple[Payload, asyncio.Future[Decoded]]) -> None:
        if self._is_stopped:
            return
        payload, done = job
        begun_s = self._machine.seconds()
        outcome = _decode(payload)
        decoded = Decoded(outcome, self._machine.seconds() - begun_s)
        self._loop.call_soon_threadsafe(settle, done, decoded)


def _decode(payload: Payload) -> Measurements | ErrorCode:
    try:
        plain = decompress(payload.compression_type, memoryview(payload.content), payload.max_bytes)
        return decode(bytes(plain), payload.max_points)
    except DecompressionLimitReached:
        return ErrorCode.telemetry_too_large
    except (LogError, InvalidPayload) as error:
        logger.debug("pushed metrics are refused: %s", error)
        return ErrorCode.invalid_record
    except BaseException:  # a panic of a codec's library is no Exception, and the request must be answered
        logger.exception("pushed metrics of %d bytes could not be decoded", len(payload.content))
        return ErrorCode.invalid_record


class SeriesLimits(msgspec.Struct, frozen=True):
    of_client: int
    of_all: int


class _Series(msgspec.Struct, eq=False):
    unit: str
    help: str
    value: Value
    time_ns: int
    pushed_ms: float

    def fold_in(self, point: Point, now_ms: float) -> None:
        self.pushed_ms = now_ms
        self.unit, self.help = point.unit, point.help
        if not point.is_delta:
            self.value = point.value
        elif not point.time_ns or point.time_ns > self.time_ns:
            self.value = _sum(self.value, point.value)
        self.time_ns = max(self.time_ns, point.time_ns)


def _sum(earlier: Value, later: Value) -> Value:
    if isinstance(earlier, HistogramValue) and isinstance(later, HistogramValue):
        return earlier.plus(later)
    assert isinstance(earlier, float)
    assert isinstance(later, float)
    return earlier + later


class _PushingClient(msgspec.Struct, eq=False):
    labels: dict[str, str]
    series: dict[SeriesKey, _Series] = msgspec.field(default_factory=dict)
    expires_ms: float = 0.0


class SeriesStore:
    """The series of all clients, and how many a client may still add. Belongs to the event loop."""

    def __init__(self) -> None:
        self._clients: dict[uuid.UUID, _PushingClient] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[PushedSeries]:
        """Yield all series, client by client. Pushes may be folded in between two of them."""
        for client in list(self._clients.values()):
            for key, series in list(client.series.items()):
                labels = {**dict(key.labels), **client.labels}
                yield PushedSeries(key.name, key.kind, series.unit, series.help, labels, series.value)

    def fold_in(
        self,
        description: ClientDescription,
        points: list[Point],
        now_ms: float,
        lifetime_ms: int,
        limits: SeriesLimits,
    ) -> int:
        """Fold in the measurements of a push; return how many a limit on series has dropped."""
        client = self._clients.get(description.client_instance_id)
        if client is None:
            client = _PushingClient(description.labels())
        client.expires_ms = now_ms + lifetime_ms
        self._forget_old(client, now_ms - lifetime_ms)
        dropped = 0
        for point in points:
            known = client.series.get(point.key)
            if known is not None:
                known.fold_in(point, now_ms)
            elif len(client.series) < limits.of_client and self._count < limits.of_all:
                client.series[point.key] = _Series(point.unit, point.help, point.value, point.time_ns, now_ms)
                self._count += 1
            else:
                dropped += 1
        if client.series:
            self._clients[description.client_instance_id] = client
        else:
            self._clients.pop(description.client_instance_id, None)
        return dropped

    def _forget_old(self, client: _PushingClient, before_ms: float) -> None:
        for key in [key for key, series in client.series.items() if series.pushed_ms <= before_ms]:
            del client.series[key]
            self._count -= 1

    def expire(self, now_ms: float) -> None:
        """Forget the clients that have pushed nothing for their lifetime."""
        for instance_id in [key for key, client in self._clients.items() if client.expires_ms <= now_ms]:
            self._count -= len(self._clients.pop(instance_id).series)
