"""Faults that a test orders: each strikes some of the requests that it names, and tells how often it did.

    with broker.faults.drop_answer(api="Produce", topic="orders", times=2) as fault:
        run_application()
    assert fault.struck == 2

`seqgate.gateway.testing.broker` carries them out.
"""

from __future__ import annotations

import enum
import random
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypedDict, TypeVar, Unpack

from kio.schema.errors import ErrorCode

from seqgate.gateway.admin.request import nearest_hint
from seqgate.gateway.handlers import APIS

if TYPE_CHECKING:
    from seqgate.gateway.testing.inside import Inside

_NAMES: Final = frozenset(api.name for api in APIS)


Run = Callable[..., object]
"""Runs a coroutine in the broker's thread; nothing if it `is_optional` and the broker is stopped."""
F = TypeVar("F")


class Requests(TypedDict, total=False):
    """The requests that a fault strikes: `times` (1) after the first `after` (0); None: any."""

    api: str | None
    topic: str | None
    client: str | None
    times: int
    after: int


class FaultOrders(ABC, Generic[F]):
    """Orders faults by their names, from a broker in this process or in another one."""

    @abstractmethod
    def order(self, fault: str, **said: Any) -> F:
        """Order a fault by its name. Raises ValueError for a wrong order, LookupError for a missing topic."""

    def drop_answer(self, *, closes: bool = True, **chosen: Unpack[Requests]) -> F:
        """Carry requests out without answering: close the connection, or let the client wait if not `closes`.
        A client sends such a request again; that is the case for which idempotent producers were made.
        """
        return self.order("drop_answer", closes=closes, **chosen)

    def close(self, **chosen: Unpack[Requests]) -> F:
        """Close the connection in place of carrying requests out."""
        return self.order("close", **chosen)

    def error(
        self,
        code: ErrorCode | str,
        *,
        carries_out: bool = False,
        milliseconds: int = 0,
        **chosen: Unpack[Requests],
    ) -> F:
        """Refuse requests with an error, such as "NOT_ENOUGH_REPLICAS", as Kafka answers a whole request with
        one error.

        With `carries_out` the request is carried out first, as before Kafka's
        NOT_ENOUGH_REPLICAS_AFTER_APPEND and REQUEST_TIMED_OUT. With `milliseconds` the client learns of the
        refusal later; what it sends behind the request meanwhile is carried out. Raises ValueError for a name
        that is no error of Kafka.
        """
        name = code.name if isinstance(code, ErrorCode) else code
        return self.order("error", code=name, carries_out=carries_out, milliseconds=milliseconds, **chosen)

    def delay(self, milliseconds: int, **chosen: Unpack[Requests]) -> F:
        """Answer requests later, and with them later ones of the connection; they are carried out at once."""
        return self.order("delay", milliseconds=milliseconds, **chosen)

    def corrupt(
        self, *, topic: str | None = None, client: str | None = None, times: int = 1, after: int = 0
    ) -> F:
        """Flip a bit of records in answers to fetches, against their CRC; spare answers without records."""
        return self.order("corrupt", topic=topic, client=client, times=times, after=after)

    def throttle(self, milliseconds: int, **chosen: Unpack[Requests]) -> F:
        """Tell clients in answers to wait, as a quota does."""
        return self.order("throttle", milliseconds=milliseconds, **chosen)

    def not_leader(self, *, topic: str | None = None, times: int = 1, after: int = 0) -> F:
        """Refuse Produce with NOT_LEADER_OR_FOLLOWER, after which a client asks who leads the partition."""
        return self.order("not_leader", topic=topic, times=times, after=after)

    def coordinator_moves(self, *, api: str = "OffsetCommit", times: int = 1, after: int = 0) -> F:
        """Refuse requests with NOT_COORDINATOR, after which a client looks for its coordinator again. Other
        APIs of coordinators: Heartbeat, JoinGroup, TxnOffsetCommit, EndTxn, ...
        """
        return self.order("coordinator_moves", api=api, times=times, after=after)

    def watch(self, *, api: str | None = None, topic: str | None = None, client: str | None = None) -> F:
        """Count requests and do nothing to them."""
        return self.order("watch", api=api, topic=topic, client=client)

    def script(
        self,
        seed: int,
        *,
        api: str | None = None,
        topic: str | None = None,
        client: str | None = None,
        rate: float = 0.1,
        times: int = 100,
        kinds: Collection[Kind] | None = None,
    ) -> F:
        """Let the share `rate` of the requests fail, each in a way that the `seed` chooses: at most `times`,
        three in a row.

        The same requests in the same order meet the same faults. The text of the fault names the seed.
        Clients retry after each of these faults; a sound application loses nothing. Raises ValueError.
        """
        said = {"api": api, "topic": topic, "client": client, "rate": rate, "times": times, "kinds": kinds}
        return self.order("script", seed=seed, **said)


class Faults(FaultOrders["Fault"]):
    """The faults of one broker. Of several that name a request, the one ordered first strikes."""

    def __init__(self, inside: Inside, run: Run) -> None:
        """`run` runs what `inside` returns in the broker's thread."""
        self._inside = inside
        self._run = run
        self._lock = threading.Lock()
        self._ordered: list[Fault] = []

    # --- requests

    def order(
        self,
        fault: str,
        *,
        api: str | None = None,
        topic: str | None = None,
        client: str | None = None,
        times: int = 1,
        after: int = 0,
        **how: Any,
    ) -> Fault:
        """Order a fault by its name; `how` are the arguments of its method. Raises ValueError."""
        choice = _known(Choice(_API_OF.get(fault, api), topic, client))
        if fault == "script":
            effects = RandomEffects(api=choice.api, **how)
            text = f"script of seed {how['seed']}, rate {how['rate']:g}"
            return self._add(Fault(text, choice, effects.pick, times=times))
        effect = _EFFECTS[fault](**how)
        return self.order_effect(effect, choice, times=EVER if fault == "watch" else times, after=after)

    def order_effect(self, effect: Effect, choice: Choice, *, times: int = 1, after: int = 0) -> Fault:
        """Let requests of a choice fail. Raises ValueError for an API that does not exist."""
        return self._add(Fault(str(effect), _known(choice), lambda _: effect, after=after, times=times))

    # --- parts

    @contextmanager
    def partition_offline(self, topic: str, partition: int = 0) -> Iterator[Fault]:
        """Take a partition offline, as after a failed write (KAFKA_STORAGE_ERROR), and recover it at the end.

        What was not flushed stays, because the disk has not failed. The fault counts the requests to the
        topic meanwhile. Raises LookupError if there is no such partition.
        """
        self._run(lambda: self._inside.take_offline(topic, partition))
        try:
            with self._watch(f"partition {topic}-{partition} offline", Choice(topic=topic)) as watched:
                yield watched
        finally:
            self._run(lambda: self._inside.bring_back(topic, partition), is_optional=True)

    @contextmanager
    def disk_full(self) -> Iterator[Fault]:
        """Let the disk seem to be full until the end: producers are refused, and nothing is lost. The fault
        counts the Produce requests meanwhile.
        """
        self._inside.fill_disk(True)
        self._run(self._inside.check_disk, is_optional=True)
        try:
            with self._watch("disk full", Choice("Produce")) as watched:
                yield watched
        finally:
            self._inside.fill_disk(False)
            self._run(self._inside.check_disk, is_optional=True)

    def expire_producer(self, producer_id: int) -> int:
        """Expire a producer, as after `producer.id.expiration.ms`; return how many partitions knew it.

        Its next batch is judged as the first of a new producer: any sequence is stored, and a retry of a
        stored batch is stored a second time. In a transaction of version 2 a sequence above 0 is refused with
        OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        count = self._run(lambda: self._inside.expire_producer(producer_id))
        assert isinstance(count, int)
        return count

    def fence(self, transactional_id: str) -> None:
        """Fence a producer and abort its transaction, as the id's next one would. Raises LookupError."""
        self._run(lambda: self._inside.fence(transactional_id))

    def _watch(self, text: str, choice: Choice) -> Fault:
        return self._add(Fault(text, choice, lambda _: Effect(Kind.WATCH)))

    # --- all of them

    def __iter__(self) -> Iterator[Fault]:
        """Iterate over the faults that have not ended, in the order in which they were ordered."""
        with self._lock:
            return iter([fault for fault in self._ordered if not fault.has_ended])

    def reset(self) -> None:
        """End all faults that strike requests."""
        with self._lock:
            for fault in self._ordered:
                fault.end()
            self._ordered.clear()

    def may_strike(self, api: str, client_id: str) -> bool:
        """Return whether a fault names such requests, whatever their topics are."""
        return any(fault.choice.may_take(api, client_id) for fault in self._ordered)

    def strike(self, request: RequestFacts) -> tuple[Fault, Effect] | None:
        """Return the fault that strikes a request, and what happens to the request; None if it is spared."""
        with self._lock:
            self._ordered = [fault for fault in self._ordered if not fault.has_ended]
            for fault in self._ordered:
                effect = fault.strike(request)
                if effect is not None and effect.kind is not Kind.WATCH:
                    return fault, effect
        return None

    def _add(self, fault: Fault) -> Fault:
        with self._lock:
            self._ordered.append(fault)
        return fault


def _time(milliseconds: int) -> int:
    if milliseconds < 0:
        raise ValueError(f"milliseconds must be at least 0, not {milliseconds}")
    return milliseconds


def _known(choice: Choice) -> Choice:
    """Return a choice whose API is served. Raises ValueError."""
    if choice.api is not None and choice.api not in _NAMES:
        near = sorted(name for name in _NAMES if name.lower() == choice.api.lower())
        hint = f": write {near[0]}" if near else ", such as Produce, Fetch or OffsetCommit"
        raise ValueError(f"{choice.api!r} is not the name of an API of Kafka that is served here{hint}")
    return choice


# What a fault does to a request.


class Kind(enum.Enum):
    """The ways in which a request fails."""

    DROP_ANSWER = "the request is carried out, and the connection closed without its answer"
    LOSE_ANSWER = "the request is carried out, and its answer never comes"
    CLOSE = "the connection is closed, and nothing is carried out"
    ERROR = "the request is refused with an error, and nothing is carried out"
    ERROR_AFTER = "the request is carried out, and answered with an error all the same"
    DELAY = "the answer comes late"
    CORRUPT = "one bit of the records in the answer is flipped"
    THROTTLE = "the answer tells the client to wait, as a quota does"
    WATCH = "the request is carried out as without a fault, and counted"


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a fault on one request. `error` is the error of ERROR and ERROR_AFTER, `delay_ms` the
    time of DELAY and THROTTLE, and that of an error whose answer comes late.
    """

    kind: Kind
    delay_ms: int = 0
    error: ErrorCode = ErrorCode.none

    def __str__(self) -> str:
        text = self.kind.name.lower().replace("_", " ")
        if self.kind in {Kind.ERROR, Kind.ERROR_AFTER}:
            text = f"{text} {self.error.name.upper()}"
        return f"{text} {self.delay_ms} ms" if self.delay_ms else text


def error_code(code: ErrorCode | str) -> ErrorCode:
    """Return the error with a name of Kafka's, such as NOT_ENOUGH_REPLICAS. Raises ValueError."""
    found = code if isinstance(code, ErrorCode) else ErrorCode.__members__.get(code.lower())
    if found is None:
        near = nearest_hint(str(code).upper(), map(str.upper, ErrorCode.__members__))
        raise ValueError(
            f"{code!r} is not the name of an error of Kafka{near or ', such as NOT_ENOUGH_REPLICAS'}"
        )
    if found is ErrorCode.none:
        raise ValueError("NONE refuses no request: name an error of Kafka, such as NOT_ENOUGH_REPLICAS")
    return found


def _refusing(code: ErrorCode | str, *, carries_out: bool = False, milliseconds: int = 0) -> Effect:
    return Effect(Kind.ERROR_AFTER if carries_out else Kind.ERROR, _time(milliseconds), error_code(code))


_EFFECTS: Final[Mapping[str, Callable[..., Effect]]] = {
    "drop_answer": lambda *, closes=True: Effect(Kind.DROP_ANSWER if closes else Kind.LOSE_ANSWER),
    "close": lambda: Effect(Kind.CLOSE),
    "error": _refusing,
    "delay": lambda milliseconds: Effect(Kind.DELAY, _time(milliseconds)),
    "corrupt": lambda: Effect(Kind.CORRUPT),
    "throttle": lambda milliseconds: Effect(Kind.THROTTLE, _time(milliseconds)),
    "not_leader": lambda: _refusing(ErrorCode.not_leader_or_follower),
    "coordinator_moves": lambda: _refusing(ErrorCode.not_coordinator),
    "watch": lambda: Effect(Kind.WATCH),
}
"""The effect of a fault by its name, from the arguments of its method."""
_API_OF: Final = {"corrupt": "Fetch", "not_leader": "Produce"}


# Random effects from a seed: the same requests in the same order meet the same faults.

MOST_IN_A_ROW: Final = 3
"""Strikes in a row of requests of a kind; the next is spared, so that a retrying client gets on."""
DELAY_MS: Final = 50
_ANY: Final = (Effect(Kind.DROP_ANSWER), Effect(Kind.CLOSE), Effect(Kind.DELAY, DELAY_MS))
_OF_COORDINATORS: Final = (
    "AddOffsetsToTxn",
    "AddPartitionsToTxn",
    "EndTxn",
    "Heartbeat",
    "InitProducerId",
    "OffsetCommit",
    "TxnOffsetCommit",
)
_ERRORS: Final[Mapping[str, Sequence[ErrorCode]]] = {
    "Produce": (
        ErrorCode.not_leader_or_follower,
        ErrorCode.not_enough_replicas,
        ErrorCode.kafka_storage_error,
    ),
    **dict.fromkeys(_OF_COORDINATORS, (ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress)),
}
"""The errors that a script answers with, by API. Clients retry after each of them."""


class RandomEffects:
    """Chooses for each request whether it fails, and how."""

    def __init__(
        self, seed: int, rate: float, kinds: Collection[Kind] | None = None, api: str | None = None
    ) -> None:
        """Strike the share `rate` of the requests, those of one `api` or of all, with effects of these
        `kinds` only. Raises ValueError.
        """
        if not 0 < rate <= 1:
            raise ValueError(f"rate must be above 0 and at most 1, not {rate}")
        if kinds is not None and not kinds:
            raise ValueError("kinds must name at least one kind of fault")
        possible = {
            each.kind for name in (_ERRORS if api is None else [api]) for each in possible_effects(name)
        }
        for kind in kinds or ():
            if kind not in possible:
                of = "" if api is None else f" for {api}"
                raise ValueError(f"a script{of} has no fault of the kind {kind.name.lower()}")
        self._random = random.Random(seed)
        self._rate = rate
        self._kinds = kinds
        self._in_a_row: dict[str, int] = {}

    def pick(self, request: RequestFacts) -> Effect | None:
        """Return what happens to a request; None spares it."""
        is_due = self._random.random() < self._rate
        effects = [
            each for each in possible_effects(request.api) if self._kinds is None or each.kind in self._kinds
        ]
        row = self._in_a_row.get(request.api, 0)
        if not is_due or not effects or row >= MOST_IN_A_ROW:
            self._in_a_row[request.api] = 0
            return None
        self._in_a_row[request.api] = row + 1
        return self._random.choice(effects)


def possible_effects(api: str) -> list[Effect]:
    errors = [Effect(Kind.ERROR, error=error) for error in _ERRORS.get(api, ())]
    return [*_ANY, Effect(Kind.THROTTLE, DELAY_MS), *errors]


# One fault: it strikes the requests that it names, some of them, and counts how often it did.

EVER: Final = 1 << 62
"""The `times` of a fault that strikes until its end."""


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """The facts by which faults choose requests. `topics` are the names of all topics in the request."""

    api: str
    client_id: str
    topics: Collection[str]


@dataclass(frozen=True, slots=True)
class Choice:
    """The requests that a fault names. None stands for every API, topic or client."""

    api: str | None = None
    topic: str | None = None
    client: str | None = None

    def may_take(self, api: str, client_id: str) -> bool:
        """Return whether the fault names such a request, whatever its topics are."""
        return self.api in {None, api} and self.client in {None, client_id}

    def takes(self, request: RequestFacts) -> bool:
        """Return whether the fault names this request."""
        return self.may_take(request.api, request.client_id) and (
            self.topic is None or self.topic in request.topics
        )

    def __str__(self) -> str:
        named = {"api": self.api, "topic": self.topic, "client": self.client}
        return (
            ", ".join(f"{name} {value}" for name, value in named.items() if value is not None)
            or "every request"
        )


Pick = Callable[[RequestFacts], Effect | None]
"""Returns what happens to a request that a fault may strike; None spares the request."""


class Fault:
    """One order. It strikes its choice's requests after the first `after`, at most `times`, until `end`."""

    def __init__(self, text: str, choice: Choice, pick: Pick, *, after: int = 0, times: int = EVER) -> None:
        """`text` says for people what the fault does. Raises ValueError for numbers that are too low."""
        if times < 1:
            raise ValueError(f"times must be at least 1, not {times}")
        if after < 0:
            raise ValueError(f"after must be at least 0, not {after}")
        self.choice = choice
        self.after = after
        self.times = times
        self.seen = 0
        self.effects: Counter[str] = Counter()
        """How often each effect has struck so far, by its text."""
        self.has_ended = False
        self._text = text
        self._pick = pick
        self._changed = threading.Condition()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def struck(self) -> int:
        with self._changed:
            return self.effects.total()

    def end(self) -> None:
        """Strike no more requests."""
        self.has_ended = True

    def wait_until_struck(self, times: int = 1, timeout_s: float = 30.0) -> None:
        """Wait until the fault has struck so often. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.effects.total() >= times, timeout_s):
                raise TimeoutError(
                    f"{self} has struck {self.effects.total()} times in {timeout_s:g} s, not {times}"
                )

    def strike(self, request: RequestFacts) -> Effect | None:
        """Count a request, and return what happens to it; None if the fault spares it."""
        with self._changed:
            if self.has_ended or self.effects.total() >= self.times or not self.choice.takes(request):
                return None
            self.seen += 1
            if self.seen <= self.after:
                return None
            effect = self._pick(request)
            if effect is not None:
                self.effects[str(effect)] += 1
                self._changed.notify_all()
            return effect

    def take_back(self, effect: Effect) -> None:
        """Count a strike no longer: the request had nothing that `effect` could spoil."""
        with self._changed:
            self.effects[str(effect)] -= 1

    def __str__(self) -> str:
        return f"{self._text} ({self.choice})"
