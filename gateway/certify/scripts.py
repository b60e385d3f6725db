"""The thirty fault scripts, and the stage of one: a broker, an empty topic, and how often faults struck."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.testing import Broker
from seqgate.gateway.testing.faults import Choice, Effect, Fault, Kind

# The stage of one script: a broker with an empty topic, the faults of the script, and how often they struck.

PRODUCE: Final = "Produce"
_SLICE_S: Final = 0.05
"""A wait looks this often whether the application has ended."""


@dataclass(frozen=True, slots=True)
class Struck:
    """How often one fault of a script struck. `what` names the fault for people."""

    what: str
    times: int


@dataclass
class Scene:
    """A broker while a script plays. The client retries after `request_timeout_s`."""

    broker: Broker
    topic: str
    partitions: int
    seed: int
    request_timeout_s: float
    has_ended: threading.Event = field(default_factory=threading.Event)
    """Set when the application has ended: nobody waits for its requests then."""

    def __post_init__(self) -> None:
        self._faults: list[tuple[str, Fault]] = []
        self._broken: list[tuple[str, int]] = []
        self._produced = self.broker.faults.watch(api=PRODUCE, topic=self.topic)

    @property
    def requests(self) -> int:
        """The Produce requests so far, those that faults strike included."""
        return self._produced.struck

    def add(self, fault: Fault, what: str | None = None) -> None:
        """Count what a fault strikes as the script's; `what` names the fault for people."""
        if what is None:
            text, api = str(fault).partition(" (")[0], fault.choice.api
            what = text if api == PRODUCE else f"{text} of {api}"
        self._faults.append((what, fault))

    def acted(self, what: str, *, in_vain: bool = False) -> None:
        """Note that the script broke a part: it strikes if Produce requests come before and after it. It
        never strikes if it was `in_vain`, because there was nothing to break.
        """
        self._broken.append((what, 0 if in_vain else self.requests))

    def struck(self) -> list[Struck]:
        broken = [
            Struck(what, int(0 < requests_before < self.requests)) for what, requests_before in self._broken
        ]
        return [*(Struck(what, fault.struck) for what, fault in self._faults), *broken]

    def wait_for_requests(self, count: int, timeout_s: float) -> bool:
        """Wait until so many Produce requests came in all; False after the time, or at the end."""
        return self.wait_until_struck(self._produced, count, timeout_s)

    def wait_until_struck(self, fault: Fault, times: int, timeout_s: float) -> bool:
        """Wait until a fault has struck so often; False after the time, or when the application ends."""
        deadline_s = time.monotonic() + timeout_s
        while fault.struck < times:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or self.has_ended.is_set():
                return False
            try:
                fault.wait_until_struck(times, min(left_s, _SLICE_S))
            except TimeoutError:
                continue
        return True

    @contextmanager
    def answers_held(self) -> Iterator[Fault]:
        """Hold back the answers to Produce requests, which are carried out, until their connection breaks."""
        with self.broker.faults.drop_answer(
            api=PRODUCE, topic=self.topic, times=1_000, closes=False
        ) as fault:
            self.add(fault)
            yield fault

    @contextmanager
    def partitions_offline(self) -> Iterator[None]:
        """Take all partitions of the topic offline, and recover them at the end."""
        with ExitStack() as opened:
            for partition in range(self.partitions):
                opened.enter_context(self.broker.faults.partition_offline(self.topic, partition))
            yield


# The broken of scripts: parts of a broker that break while the application sends. Each act runs between two
# bursts of values, and yields for the next burst.

OUTAGE_BURSTS: Final = 4
_PRODUCE_TIMEOUT_S: Final = 5.0
"""Time in which a client sends what it has got; then the script goes on without a batch in flight."""
_METADATA_TIMEOUT_S: Final = 20.0
"""Time in which a client asks for a topic twice; then the topic is created all the same."""


def broker_killed(scene: Scene) -> Iterator[None]:
    """Kill the broker while it holds back the answers to batches that it has stored."""
    with scene.answers_held() as held:
        yield
        yield
        scene.wait_until_struck(held, 1, _PRODUCE_TIMEOUT_S)
        scene.acted("broker killed")
        scene.broker.kill()
    yield
    scene.broker.start()


def broker_restarted(scene: Scene) -> Iterator[None]:
    """Stop the broker cleanly, and start it two bursts later."""
    scene.acted("broker stopped")
    scene.broker.stop()
    yield
    yield
    scene.broker.start()


def power_cut(scene: Scene) -> Iterator[None]:
    """Cut the broker's power, which loses what was not flushed."""
    scene.acted("power cut")
    scene.broker.power_cut()
    yield
    scene.broker.start()


def partition_offline(scene: Scene) -> Iterator[None]:
    """Take the partitions offline for some bursts."""
    scene.acted("partition offline")
    with scene.partitions_offline():
        for _ in range(OUTAGE_BURSTS):
            yield


def disk_full(scene: Scene) -> Iterator[None]:
    """Let the disk be full for some bursts."""
    scene.acted("disk full")
    with scene.broker.faults.disk_full():
        for _ in range(OUTAGE_BURSTS):
            yield


def producer_forgotten(scene: Scene) -> Iterator[None]:
    """Let the partitions forget all producers, as after `producer.id.expiration.ms`."""
    known = {row.producer_id for row in scene.broker.producers(scene.topic)}
    scene.acted("producer forgotten", in_vain=not known)
    for producer_id in known:
        scene.broker.faults.expire_producer(producer_id)
    yield


def leader_moves_unseen(scene: Scene) -> Iterator[None]:
    """Refuse a batch, and close the connections that ask for the leader of its partition then."""
    faults = scene.broker.faults
    scene.add(faults.not_leader(topic=scene.topic))
    scene.add(faults.close(api="Metadata", times=2))
    yield


def last_batches_refused(scene: Scene) -> Iterator[None]:
    """Refuse the batches that come from now on, a few times."""
    scene.add(scene.broker.faults.error("NOT_ENOUGH_REPLICAS", api=PRODUCE, topic=scene.topic, times=4))
    yield


def topic_created_late(scene: Scene) -> Iterator[None]:
    """Create the topic when the client has asked for it twice."""
    with scene.broker.faults.watch(api="Metadata", topic=scene.topic) as asked:
        scene.add(asked, "Metadata without the topic")
        yield
        scene.wait_until_struck(asked, 2, _METADATA_TIMEOUT_S)
    scene.broker.create_topic(scene.topic, scene.partitions)


# Fault scripts. A script has the requests that fail, and the parts of the broker that break while the
# application sends.

Act = Callable[[Scene], Iterator[None]]
"""Breaks and repairs parts of the broker; at each `yield` the application gets the next burst."""
RETRIES: Final = "sends the batch again; the broker recognises a batch that it has"
ACT_AT: Final = 5
LATE_FACTOR: Final = 1.5
"""An answer that is too late comes after so many request timeouts of the client."""


@dataclass(frozen=True, slots=True)
class RequestFault:
    """Requests that fail: `times` after the first `after` that no earlier fault of the script strikes. An
    `effect` of kind DELAY without a time delays beyond the client's request timeout.
    """

    effect: Effect
    api: str = PRODUCE
    times: int = 1
    after: int = 0

    def order(self, scene: Scene) -> Fault:
        effect = self.effect
        if effect.kind is Kind.DELAY and not effect.delay_ms:
            effect = Effect(Kind.DELAY, round(LATE_FACTOR * scene.request_timeout_s * 1000))
        topic = scene.topic if self.api == PRODUCE else None
        return scene.broker.faults.order_effect(
            effect, Choice(self.api, topic), times=self.times, after=self.after
        )


@dataclass(frozen=True, slots=True)
class RandomFaults:
    """The share `rate` of all Produce requests fails, at most `times`, as the seed chooses."""

    seed_offset: int
    rate: float = 0.4
    times: int = 12

    def order(self, scene: Scene) -> Fault:
        seed = scene.seed + self.seed_offset
        return scene.broker.faults.script(
            seed, api=PRODUCE, topic=scene.topic, rate=self.rate, times=self.times
        )


@dataclass(frozen=True, slots=True)
class Script:
    """One fault script: what `happens`, and what a `correct` producer does then.

    With `may_give_up` it may also report a failure. Without `has_topic` the act creates the topic.
    """

    name: str
    happens: str
    correct: str = RETRIES
    faults: tuple[RequestFault | RandomFaults, ...] = ()
    act: Act | None = None
    act_at: int = ACT_AT
    may_give_up: bool = False
    has_topic: bool = True

    def begin(self, scene: Scene) -> None:
        """Order the faults, before the application starts."""
        for fault in self.faults:
            scene.add(fault.order(scene))


_DROP: Final = Effect(Kind.DROP_ANSWER)
_CLOSE: Final = Effect(Kind.CLOSE)
_HOLD: Final = Effect(Kind.DELAY, 400)
"""Lets several requests of a client be in flight at once."""
_ASKS_WHO_LEADS: Final = "asks who leads the partition, and sends the batch again"
_WAITS: Final = "waits and sends again, in the order of its values"
_ORDER: Final = "sends all of them again, in their order; none of them twice"


def _error(code: ErrorCode) -> Effect:
    return Effect(Kind.ERROR, error=code)


def _error_after(code: ErrorCode) -> Effect:
    return Effect(Kind.ERROR_AFTER, error=code)


SCRIPTS: Final = (
    # --- answers
    Script(
        "first-answer-lost",
        "The first batch is stored, and the connection closes in place of its answer.",
        faults=(RequestFault(_DROP),),
    ),
    Script(
        "middle-answer-lost",
        "A batch in the middle is stored, and the connection closes in place of its answer.",
        faults=(RequestFault(_DROP, after=4),),
    ),
    Script(
        "answer-lost-again",
        "The answer of a batch is lost, and then those of two retries.",
        faults=(RequestFault(_DROP, times=3, after=2),),
    ),
    Script(
        "answer-never-comes",
        "A batch is stored; its answer never comes, and the connection stays open.",
        "sends the batch again after its request timeout",
        faults=(RequestFault(Effect(Kind.LOSE_ANSWER), after=2),),
    ),
    Script(
        "answer-too-late",
        "The answer of a batch comes after the client's request timeout.",
        "sends the batch again, and does not take the late answer for that of another request",
        faults=(RequestFault(Effect(Kind.DELAY), after=2),),
    ),
    Script(
        "answers-lost-amid-requests",
        "Several batches are in flight and stored, and their connection closes before any is answered.",
        _ORDER,
        faults=(RequestFault(_HOLD, after=1), RequestFault(_DROP, after=1)),
    ),
    # --- connections
    Script(
        "connection-closed-again",
        "The connection closes at a batch in the middle, and at two retries; nothing is stored.",
        "connects again, and sends the batch again",
        faults=(RequestFault(_CLOSE, times=3, after=2),),
    ),
    # --- errors
    Script(
        "leader-moves",
        "Two batches are refused with NOT_LEADER_OR_FOLLOWER.",
        _ASKS_WHO_LEADS,
        faults=(RequestFault(_error(ErrorCode.not_leader_or_follower), times=2, after=2),),
    ),
    Script(
        "leader-moves-unseen",
        "A batch is refused with NOT_LEADER_OR_FOLLOWER, and the connection closes twice when the client "
        "asks who leads.",
        _ASKS_WHO_LEADS,
        act=leader_moves_unseen,
    ),
    Script(
        "replicas-missing",
        "Three batches are refused with NOT_ENOUGH_REPLICAS.",
        _WAITS,
        faults=(RequestFault(_error(ErrorCode.not_enough_replicas), times=3, after=2),),
    ),
    Script(
        "replicas-missing-after-append",
        "A batch is stored, and answered with NOT_ENOUGH_REPLICAS_AFTER_APPEND.",
        faults=(RequestFault(_error_after(ErrorCode.not_enough_replicas_after_append), after=2),),
    ),
    Script(
        "request-timed-out",
        "A batch is stored, and answered with REQUEST_TIMED_OUT.",
        faults=(RequestFault(_error_after(ErrorCode.request_timed_out), after=2),),
    ),
    Script(
        "topic-unknown",
        "Two batches are refused with UNKNOWN_TOPIC_OR_PARTITION, as by a broker that lags behind.",
        _ASKS_WHO_LEADS,
        faults=(RequestFault(_error(ErrorCode.unknown_topic_or_partition), times=2, after=2),),
    ),
    Script(
        "batch-corrupted",
        "A batch is refused with CORRUPT_MESSAGE, as after a bit flipped on its way.",
        "sends the batch again, or reports the failure",
        faults=(RequestFault(_error(ErrorCode.corrupt_message), after=2),),
        may_give_up=True,
    ),
    Script(
        "error-amid-requests",
        "Several batches are in flight, and one in the middle is refused with NOT_LEADER_OR_FOLLOWER.",
        _ORDER,
        faults=(
            RequestFault(_HOLD, after=1),
            RequestFault(_error(ErrorCode.not_leader_or_follower), after=1),
        ),
    ),
    Script(
        "refused-for-good",
        "A batch is refused with TOPIC_AUTHORIZATION_FAILED.",
        "reports the failure, and does not claim the records of the batch",
        faults=(RequestFault(_error(ErrorCode.topic_authorization_failed), after=2),),
        may_give_up=True,
    ),
    Script(
        "last-batches-refused",
        "The last batches are refused four times with NOT_ENOUGH_REPLICAS.",
        "ends when everything is acknowledged, and not before",
        act=last_batches_refused,
        act_at=18,
    ),
    Script(
        "throttled",
        "Three answers tell the client to wait for 300 ms, as a quota does.",
        "waits",
        faults=(RequestFault(Effect(Kind.THROTTLE, 300), times=3, after=1),),
    ),
    # --- before the first batch
    Script(
        "producer-id-refused",
        "Two requests for a producer id are refused with COORDINATOR_LOAD_IN_PROGRESS.",
        "asks again",
        faults=(RequestFault(_error(ErrorCode.coordinator_load_in_progress), api="InitProducerId", times=2),),
    ),
    Script(
        "producer-id-lost",
        "A producer id is handed out, and the connection closes in place of the answer.",
        "asks again",
        faults=(RequestFault(_DROP, api="InitProducerId"),),
    ),
    Script(
        "metadata-lost",
        "The connection closes in place of the first two answers to Metadata.",
        "asks again",
        faults=(RequestFault(_DROP, api="Metadata", times=2),),
    ),
    Script(
        "topic-created-late",
        "The topic is missing when the application starts, and is created after two requests for it.",
        "asks until the topic is there",
        act=topic_created_late,
        act_at=0,
        has_topic=False,
    ),
    # --- the broker
    Script(
        "broker-killed",
        "The broker is killed with batches that are stored and not answered, and starts again.",
        "connects again and sends them again; the broker recognises them after its recovery",
        act=broker_killed,
    ),
    Script(
        "broker-restarted",
        "The broker stops cleanly, and starts again.",
        "connects again",
        act=broker_restarted,
    ),
    Script(
        "power-cut",
        "The machine of the broker loses its power; batches without an answer may be lost.",
        "sends again what was not answered, in the order of its values",
        act=power_cut,
    ),
    Script(
        "partition-offline",
        "The partition is offline for a while: KAFKA_STORAGE_ERROR.",
        _WAITS,
        act=partition_offline,
    ),
    Script(
        "disk-full", "The disk of the broker is full for a while: KAFKA_STORAGE_ERROR.", _WAITS, act=disk_full
    ),
    Script(
        "producer-forgotten",
        "The broker forgets the producer id, as after a long pause.",
        "gets a new producer id or a new epoch, and goes on; it may report a failure instead",
        act=producer_forgotten,
        may_give_up=True,
    ),
    # --- chance
    Script("random-1", "Up to twelve batches fail, in ways that --seed chooses.", faults=(RandomFaults(1),)),
    Script(
        "random-2", "Up to twelve batches fail, in other ways that --seed chooses.", faults=(RandomFaults(2),)
    ),
)

CALM: Final = Script("calm", "Nothing fails.", "sends each value once")
"""The run before the scripts: an application that fails without a fault can't be judged."""


def named(names: list[str]) -> list[Script]:
    """Return the scripts with these names, in the order of SCRIPTS. Raises ValueError."""
    known = {script.name for script in SCRIPTS}
    for name in names:
        if name not in known:
            raise ValueError(f"{name!r} is not the name of a script; `seqgate certify --list` lists them")
    return [script for script in SCRIPTS if script.name in names]
