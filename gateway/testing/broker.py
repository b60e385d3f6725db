"""A broker in a thread of a test's own process, on a free port.

with Broker() as broker:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
"""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from uuid import UUID

from seqgate.gateway.config import Config, load_config
from seqgate.gateway.config.metrics import METRICS_LISTENER
from seqgate.gateway.config.setting import LONG_MAX
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.handlers import APIS
from seqgate.gateway.handlers.answering.api import CloseConnection, Deferred, Peer, ResponseBytes
from seqgate.gateway.handlers.records.produce_order import Refusals
from seqgate.gateway.protocol.error_answers import PRODUCE, error_answer, with_throttle_time
from seqgate.gateway.protocol.frames import parse_request_header, skip_tagged_fields
from seqgate.gateway.protocol.messages import is_flexible, request_schema
from seqgate.gateway.protocol.produce_codec import produce_reader
from seqgate.gateway.server.dispatcher import Dispatcher, Requests
from seqgate.gateway.testing.data_directory import TemporaryDirectory, empty
from seqgate.gateway.testing.differences import explain_differences
from seqgate.gateway.testing.faults import Effect, Fault, Faults, Kind, RequestFacts
from seqgate.gateway.testing.inside import BrokerClock, DurablePart, Inside, ShiftedLoop, ShiftedMachine
from seqgate.gateway.testing.stored import StoredProducer, StoredRecord, fetched_records
from seqgate.log import FileRegion
from seqgate.log.format.record_batch import whole_batches

logger = logging.getLogger(__name__)

T = TypeVar("T")


class AnyBroker(ABC):
    """A broker with one data directory, in this process or in one of its own. It can be stopped and started
    again, and keeps its port and its data.
    """

    def __init__(self, directory: Path | str | None) -> None:
        """Take the data directory; None: a temporary one, made when it is first asked for."""
        self._given = None if directory is None else Path(directory)
        self._temporary = TemporaryDirectory()
        self._port = 0
        """The port of the first listener; 0 before the first start."""

    @property
    def directory(self) -> Path:
        """The data directory, which may not exist yet."""
        return self._temporary.path / "data" if self._given is None else self._given

    @property
    def bootstrap(self) -> str:
        """The address for clients, HOST:PORT. Raises RuntimeError before the first start."""
        if not self._port:
            raise RuntimeError("the broker has no address before its first start: call start()")
        return f"127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- its life

    @abstractmethod
    def start(self) -> None:
        """Start, and return when clients can connect. Raises StartFailed; RuntimeError if it runs already."""

    @abstractmethod
    def stop(self) -> None:
        """Stop cleanly, and return when all data is written; a stopped broker stays stopped."""

    def restart(self) -> None:
        """Stop cleanly and start again, on the same port with the same data."""
        self.stop()
        self.start()

    @abstractmethod
    def kill(self) -> None:
        """End at once, as kill -9 does: what was written stays, and `start` recovers the data."""

    @abstractmethod
    def power_cut(self) -> None:
        """End at once, and lose every record that was not flushed, as when the machine loses its power.

        With SETTINGS nothing is flushed before an answer. Set `log.flush.interval.messages` to "1" for a
        broker that loses no acknowledged record. Raises RuntimeError if the broker does not run.
        """

    @abstractmethod
    def reset(self) -> None:
        """Begin anew: no topics, groups, producers, transactions or faults, at the time of day, same port."""

    def close(self) -> None:
        """Stop, and remove a temporary directory."""
        try:
            self.stop()
        finally:
            self._temporary.remove()

    # --- looking inside

    @abstractmethod
    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic. Raises ValueError if the broker refuses it, for example because it exists."""

    @abstractmethod
    def topics(self) -> list[str]:
        """Return the names of the topics, internal ones left out."""

    @abstractmethod
    def records(self, topic: str) -> list[StoredRecord]:
        """Return the committed records of a topic, by partition and offset. Raises LookupError without it."""

    @abstractmethod
    def producers(self, topic: str) -> list[StoredProducer]:
        """Return the producers that the partitions of a topic track. Raises LookupError without it."""

    @abstractmethod
    def groups(self) -> dict[str, str]:
        """Return the state of each group, by its id."""

    def assert_exactly_once(self, topic: str, expected: Iterable[bytes | None]) -> None:
        """Check that the topic holds these values once, in each partition in the order of their sending.
        Raises AssertionError, which names the lost, doubled, unexpected and reordered records.
        """
        complaint = self._complaint(topic, expected)
        if complaint is not None:
            raise AssertionError(f"topic {topic}: {complaint}")

    @abstractmethod
    def _complaint(self, topic: str, expected: Iterable[bytes | None]) -> str | None: ...


class NotNow(RuntimeError):
    """A broker that runs can't do this, or one that does not run; the message says what to call first."""


class BrokerThread(AnyBroker):
    """Runs one gateway after the other in a thread, on the same data and ports. Call it from other threads.
    The faults before its dispatcher, and its machine with clocks that move, stay from one to the next.
    """

    def __init__(self, config: Config, directory: Path | str | None) -> None:
        """Take the settings, and the data directory; both are used with the first start."""
        super().__init__(directory)
        self.machine = ShiftedMachine()
        self._inside = Inside(lambda: self.gateway, self.machine.disk)
        self.faults = Faults(self._inside, self._run_if_started)
        self.clock = BrokerClock(self._advance)
        self.gateway: Gateway
        self.advertised = ""
        """The first address for clients, HOST:PORT; empty before the first start."""
        self._config = config
        self._life = threading.RLock()
        self._ordering = threading.Lock()
        """Held while an order goes to the gateway's thread, and while that thread begins to take none."""
        self._is_killed = False
        self._is_lost = False
        """Whether the gateway has ended by itself, as one does whose session in a bucket has ended."""
        self._durable: list[DurablePart] = []
        self._thread: threading.Thread | None = None
        self._ended: Future[None]
        self._loop: ShiftedLoop
        self._requests: FaultyRequests
        self._stopping: asyncio.Event

    @property
    def is_running(self) -> bool:
        return self._thread is not None and not self._is_lost

    def start(self) -> None:
        with self._life:
            if self.is_running:
                raise NotNow("the broker runs already: call stop() first")
            self.stop()  # the thread of a gateway that has ended by itself
            self._is_killed = self._is_lost = False
            started: Future[None] = Future()
            self._ended = Future()
            thread = threading.Thread(target=self._run, args=(started,), name="seqgate", daemon=True)
            thread.start()
            try:
                started.result()
            except BaseException:
                thread.join()
                raise
            self._thread = thread

    def stop(self) -> None:
        """Stop cleanly, and return when all data is written. Raises what the stop raises."""
        with self._life:
            thread, self._thread = self._thread, None
            if thread is None:
                return
            with self._ordering:
                if not self._is_lost:
                    self._loop.call_soon_threadsafe(self._stopping.set)
            thread.join()
            self._ended.result()

    def kill(self) -> None:
        with self._life:
            self._is_killed = True
            self.stop()

    def power_cut(self) -> None:
        with self._life:
            self._check_running()
            self.kill()
            for part in self._durable:
                part.lose_the_rest()

    def reset(self) -> None:
        with self._life:
            self.faults.reset()
            self.machine.disk.is_full = False
            self.kill()
            empty(self.directory)
            self.machine.ahead_s = 0.0
            self.start()

    def _run_in_loop(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run a coroutine in the gateway's loop. Raises NotNow if it does not run, or ends meanwhile."""

        async def begin() -> T:
            return await work()

        with self._life, self._ordering:
            self._check_running()
            asked = asyncio.run_coroutine_threadsafe(begin(), self._loop)
        try:
            return asked.result()
        except CancelledError:
            raise NotNow("the broker ended before it answered") from None

    def _run_if_started(self, work: Callable[[], Awaitable[object]], *, is_optional: bool = False) -> object:
        """Run a coroutine; if the gateway is stopped and it `is_optional`, run nothing and return None."""
        return None if is_optional and not self.is_running else self._run_in_loop(work)

    def _advance(self, by_s: float) -> None:
        """Move the clock forward by seconds; a stopped gateway starts at the later time."""
        with self._life:
            if self.is_running:
                self._run_in_loop(lambda: self._inside.advance(by_s))
            else:
                self.machine.ahead_s += by_s

    # --- looking inside

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        self._run_in_loop(lambda: self._inside.create_topic(name, partitions, configs or {}))

    def topics(self) -> list[str]:
        return self._run_in_loop(self._inside.topics)

    def records(self, topic: str) -> list[StoredRecord]:
        return self._run_in_loop(lambda: self._inside.records(topic))

    def producers(self, topic: str) -> list[StoredProducer]:
        return self._run_in_loop(lambda: self._inside.producers(topic))

    def groups(self) -> dict[str, str]:
        return self._run_in_loop(self._inside.groups)

    def live_brokers(self) -> int:
        """Return how many brokers of its cluster this one knows as running, itself among them."""
        return self._run_in_loop(self._inside.live_brokers)

    def partitions(self, topic: str) -> dict[int, bool]:
        """Return the partitions of a topic, and whether this broker leads each; none without the topic."""
        return self._run_in_loop(lambda: self._inside.led(topic))

    def _complaint(self, topic: str, expected: Iterable[bytes | None]) -> str | None:
        return explain_differences(self.records(topic), expected)

    def _check_running(self) -> None:
        if not self.is_running:
            raise NotNow("the broker does not run: call start() first")

    # --- in the gateway's thread

    def _run(self, started: Future[None]) -> None:
        try:
            with asyncio.Runner(loop_factory=self._new_loop) as runner:
                runner.run(self._serve(started))
        except BaseException as error:  # noqa: BLE001 - raised again in `start` or `stop`
            (self._ended if started.done() else started).set_exception(error)
        else:
            self._ended.set_result(None)

    def _new_loop(self) -> ShiftedLoop:
        self._loop = ShiftedLoop()
        self._loop.ahead_s = self.machine.ahead_s
        return self._loop

    async def _serve(self, started: Future[None]) -> None:
        self._stopping = asyncio.Event()
        # A copy: what clients alter while a gateway runs is in its data, and not in the settings of the next
        # one.
        config = self._config.apart()
        config.choose("log.dirs", str(self.directory))
        gateway = self.gateway = Gateway(config, self.machine, before=self._before)
        await gateway.start()
        self._keep_addresses(gateway)
        started.set_result(None)
        await self._until_the_end(gateway)
        if self._is_killed or self._is_lost:
            # Nothing is acknowledged between the look and the end, because there is no await.
            self._durable = self._inside.durable_parts()
            await gateway.abandon()
        else:
            self._requests.let_go()
            await gateway.stop()

    async def _until_the_end(self, gateway: Gateway) -> None:
        """Wait until the gateway is to stop, or has to end by itself, and note which."""
        stopped = asyncio.create_task(self._stopping.wait())
        ended = asyncio.create_task(gateway.backend.ended())
        await asyncio.wait((ended, stopped), return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            logger.warning("%s", ended.exception())
            with self._ordering:
                self._is_lost = True
        ended.cancel()

    def _before(self, dispatcher: Dispatcher) -> Requests:
        self._requests = FaultyRequests(dispatcher, self.faults, self._inside)
        return self._requests

    def _keep_addresses(self, gateway: Gateway) -> None:
        """Let the next gateway listen on the ports that the system chose for this one."""
        node = gateway.services.node
        ports = [node.bound[each.name].port for each in self._config.listeners]
        shown = [
            f"{each.name}://{f'[{each.host}]' if ':' in each.host else each.host}:{port}"
            for each, port in zip(self._config.listeners, ports, strict=True)
        ]
        self._config.choose("listeners", tuple(shown))
        if gateway.metrics_address:
            self._config.choose(METRICS_LISTENER, gateway.metrics_address)
        self._port = ports[0]
        self.advertised = next(endpoint.shown for endpoint in node.brokers.advertised.values())


class Broker(BrokerThread):
    """A broker in a thread of this process.

    `faults` lets requests fail, `clock` moves its time. Call all methods from threads of the test.
    """

    def __init__(
        self, directory: Path | str | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        """Prepare the broker; `settings` override SETTINGS. Raises ConfigError for a wrong setting. Without a
        `directory` the data is in a temporary one, which `close` removes.
        """
        chosen = {"listeners": "PLAINTEXT://127.0.0.1:0", **SETTINGS, **(settings or {})}
        config = load_config(None, {}, [f"{name}={value}" for name, value in chosen.items()])
        super().__init__(config, directory)


# The settings of a broker for tests.

SETTINGS: Final[Mapping[str, str]] = {
    "log.flush.interval.messages": str(LONG_MAX),
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
    "max.incremental.fetch.session.cache.slots": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
"""The settings that make a broker quick: no fsync before an answer, no wait for further members, small
internal topics. Without fetch sessions each fetch names its topics, so that faults find them.
"""


# Lets requests fail as a test has ordered, before they reach the dispatcher.

_NAMES: Final = {api.key: api.name for api in APIS}
_MOST_ROWS: Final = 1_000_000
_NAME_FIELDS: Final = frozenset({"name", "topic", "topic_name"})
_NAMES_FIELDS: Final = frozenset({"topic_names", "subscribed_topic_names"})
_TOPIC_RESOURCE: Final = 2
"""The type of a resource that is a topic, in requests for configurations and for ACLs."""
FIRST_PRODUCE: Final = 3


class FaultyRequests:
    """Begins requests with the dispatcher, and does to some of them what faults say."""

    def __init__(self, dispatcher: Dispatcher, faults: Faults, inside: Inside) -> None:
        """`inside` looks into the gateway that the dispatcher belongs to."""
        self._dispatcher = dispatcher
        self._faults = faults
        self._inside = inside
        self._topic_name = inside.topic_name
        self._held: set[Deferred] = set()

    @property
    def requests(self) -> int:
        return self._dispatcher.requests

    def begin(self, frame: memoryview, peer: Peer) -> ResponseBytes | Deferred | None:
        """Begin one request, or let it fail. Raises as `Dispatcher.begin` does."""
        api_key, version, correlation_id, client_id, position = parse_request_header(frame)
        name = _NAMES.get(api_key)
        if name is None or not self._faults.may_strike(name, client_id):
            return self._dispatcher.begin(frame, peer)
        request = _decoded(api_key, version, frame, position)
        if request is None:
            return self._dispatcher.begin(frame, peer)
        facts = RequestFacts(name, client_id, frozenset(self._topics(request)))
        struck = self._faults.strike(facts)
        if struck is None:
            return self._dispatcher.begin(frame, peer)
        fault, effect = struck
        wants_no_answer = api_key == PRODUCE and request.acks == 0
        if effect.kind is Kind.CLOSE or (effect.kind is Kind.ERROR and wants_no_answer):
            # Kafka, too, closes the connection when a Produce that wants no answer fails.
            raise self._closing(peer, f"before {name}")
        refusal = partial(_refusal, api_key, version, correlation_id, request, effect)
        if effect.kind is Kind.ERROR:
            if api_key == PRODUCE and version >= FIRST_PRODUCE:
                refusals = Refusals(self._inside.refusals(), peer)
                _note_refused(refusals, version, frame, position, effect)
            return self._changed(refusal(), lambda answer: answer, effect) if effect.delay_ms else refusal()
        begun = self._dispatcher.begin(frame, peer)
        if begun is None:
            if effect.kind is Kind.DROP_ANSWER:
                raise self._closing(peer, f"after {name}")
            return None
        if effect.kind is Kind.DROP_ANSWER:
            self._closing(peer, f"after {name}")
        change = self._change_of(fault, effect, api_key, version, refusal)
        return self._changed(begun, change, effect)

    def begin_uncharged(self, frame: memoryview, peer: Peer) -> ResponseBytes | Deferred | None:
        """Begin a request of a client that has not logged in; no fault strikes it."""
        return self._dispatcher.begin_uncharged(frame, peer)

    def let_go(self) -> None:
        """Close the connections whose answers are held back, so that a stop does not wait for them."""
        held, self._held = self._held, set()
        for each in held:
            if each.answer is None and not each.abandoned:
                each.resolve_last(b"")

    def _closing(self, peer: Peer, when: str) -> CloseConnection:
        """Log that a fault closes the connection; return what closes it without a warning."""
        logger.info("closing the connection of %s: a test ordered it %s", peer.name, when)
        return CloseConnection()

    def _changed(self, begun: ResponseBytes | Deferred, change: AnswerChange, effect: Effect) -> Deferred:
        """Return the answer of a request that is carried out, as the fault leaves it."""
        changed = Deferred()
        if not isinstance(begun, Deferred):
            self._pass_on(begun, changed, change, effect)
            return changed
        changed.holds_back = begun.holds_back
        if begun.answer is not None:
            self._resolved(begun, changed, change, effect)
        else:
            changed.on_abandoned = begun.abandon
            begun.on_others_may_begin = changed.let_others_begin
            begun.on_resolved = partial(self._resolved, begun, changed, change, effect)
        return changed

    def _resolved(self, begun: Deferred, changed: Deferred, change: AnswerChange, effect: Effect) -> None:
        if begun.failed:
            changed.take_over(begun)
        else:
            self._pass_on(begun.answer or b"", changed, change, effect)

    def _pass_on(
        self, answer: ResponseBytes, changed: Deferred, change: AnswerChange, effect: Effect
    ) -> None:
        if effect.kind is Kind.DROP_ANSWER:
            changed.resolve_last(b"")
        elif effect.kind is Kind.LOSE_ANSWER:
            self._hold(changed)
        elif effect.delay_ms and effect.kind is not Kind.THROTTLE:
            self._hold(changed)
            delay_s = effect.delay_ms / 1000
            asyncio.get_running_loop().call_later(delay_s, self._resolve_late, changed, change(answer))
        else:
            changed.resolve(change(answer))

    def _hold(self, changed: Deferred) -> None:
        self._held.add(changed)
        changed.on_abandoned = partial(self._held.discard, changed)

    def _resolve_late(self, changed: Deferred, answer: ResponseBytes) -> None:
        self._held.discard(changed)
        if changed.answer is None and not changed.abandoned:
            changed.resolve(answer)

    def _change_of(
        self, fault: Fault, effect: Effect, api_key: int, version: int, refusal: Callable[[], bytes]
    ) -> AnswerChange:
        if effect.kind is Kind.ERROR_AFTER:
            return lambda _: refusal()
        if effect.kind is Kind.CORRUPT:
            return partial(self._corrupted, fault, effect, version)
        if effect.kind is Kind.THROTTLE:
            return lambda answer: with_throttle_time(_whole(answer), api_key, version, effect.delay_ms)
        return lambda answer: answer

    def _corrupted(self, fault: Fault, effect: Effect, version: int, answer: ResponseBytes) -> ResponseBytes:
        """Flip the last bit of the named topic's first batch; take the strike back if there is none."""
        whole = bytearray(_whole(answer))
        for topic, start, end in fetched_records(bytes(whole), version):
            name = self._topic_name(topic) if isinstance(topic, UUID) else topic
            if fault.choice.topic in {None, name}:
                for position, batch in whole_batches(memoryview(whole)[start:end].toreadonly()):
                    whole[start + position + batch.size_bytes - 1] ^= 1
                    return bytes(whole)
        fault.take_back(effect)
        return bytes(whole)

    def _topics(self, request: Any) -> Iterator[str]:
        for place in fields(request):
            value = getattr(request, place.name)
            if not isinstance(value, tuple):
                continue
            for row in value:
                if is_dataclass(row):
                    yield from self._names_in(row)
                    yield from self._topics(row)
                elif place.name in _NAMES_FIELDS and isinstance(row, str):
                    yield row

    def _names_in(self, row: Any) -> Iterator[str]:
        for name in _NAME_FIELDS:
            value = getattr(row, name, None)
            if isinstance(value, str) and value:
                yield value
        if getattr(row, "resource_type", None) == _TOPIC_RESOURCE:
            yield row.resource_name
        topic_id = getattr(row, "topic_id", None)
        if isinstance(topic_id, UUID) and (found := self._topic_name(topic_id)) is not None:
            yield found


def _decoded(api_key: int, version: int, frame: memoryview, position: int) -> Any:
    """Return a request; None for one that the dispatcher refuses."""
    try:
        if is_flexible(api_key, version):
            position = skip_tagged_fields(frame, position)
        return request_schema(api_key, version).read(memoryview(bytes(frame)), position)[0]
    except Exception:  # noqa: BLE001 - the dispatcher finds the same, and knows the sentence for it
        return None


def _note_refused(refusals: Refusals, version: int, frame: memoryview, position: int, effect: Effect) -> None:
    """Note a refused Produce, so that no later batch is stored before one that is sent again."""
    if is_flexible(PRODUCE, version):
        position = skip_tagged_fields(frame, position)
    request, _ = produce_reader(version)(frame, position)
    for key, entries in request.topics:
        for entry in entries:
            refusals.note(key, entry.partition, entry.records, int(effect.error))


def _refusal(api_key: int, version: int, correlation_id: int, request: Any, effect: Effect) -> bytes:
    return error_answer(
        api_key,
        version,
        correlation_id,
        request,
        effect.error,
        "a test ordered this error",
        most_rows=_MOST_ROWS,
    )


AnswerChange = Callable[[ResponseBytes], ResponseBytes]


def _whole(answer: ResponseBytes) -> bytes:
    """Return an answer in memory, with the records that are still in their files."""
    if isinstance(answer, bytes):
        return answer
    return b"".join(piece.read() if isinstance(piece, FileRegion) else piece for piece in answer)
