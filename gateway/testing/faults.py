"""Faults that a test orders: each strikes the requests that it names, some of them, and tells how often it did.

    with broker.faults.drop_answer(api="Produce", topic="orders", times=2) as fault:
        run_application()
    assert fault.struck == 2

`gateway.testing.faulty_requests` carries them out.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from kio.schema.errors import ErrorCode

from gateway.handlers import APIS
from gateway.testing.effects import Effect, Kind, error_code
from gateway.testing.fault import EVER, Choice, Fault, RequestFacts
from gateway.testing.random_effects import RandomEffects

_NAMES: Final = frozenset(api.name for api in APIS)


class Parts(Protocol):
    """The parts of a broker that a test may break. All coroutines run in the broker's event loop."""

    def fill_disk(self, is_full: bool) -> None:
        """Let the disk seem to have no room, or the room that it has; a broker that runs notices with `check_disk`."""

    async def take_offline(self, topic: str, partition: int) -> None:
        """Let a partition fail as after a failed write. Raises LookupError."""

    async def bring_back(self, topic: str, partition: int) -> None:
        """Recover a partition if it is offline."""

    async def check_disk(self) -> None:
        """Measure the free space of the disk now."""

    async def expire_producer(self, producer_id: int) -> int:
        """Forget a producer; return in how many partitions it was known."""

    async def fence(self, transactional_id: str) -> None:
        """Fence the producer of a transactional id. Raises LookupError."""


class Run(Protocol):
    """Runs a coroutine in the broker's thread, and returns its result; runs nothing and returns None if the broker is stopped and `is_optional`."""

    def __call__(self, work: Callable[[], Awaitable[object]], *, is_optional: bool = False) -> object: ...


class Faults:
    """The faults of one broker. Of several that name a request, the one ordered first strikes."""

    def __init__(self, parts: Parts, run: Run) -> None:
        """`run` runs what `parts` return in the broker's thread."""
        self._parts = parts
        self._run = run
        self._lock = threading.Lock()
        self._ordered: list[Fault] = []

    # --- requests

    def drop_answer(
        self,
        *,
        api: str | None = None,
        topic: str | None = None,
        client: str | None = None,
        times: int = 1,
        after: int = 0,
        closes: bool = True,
    ) -> Fault:
        """Carry requests out without answering: close the connection, or let the client wait if not `closes`.

        A client sends such a request again; that is the case for which idempotent producers were made.
        """
        effect = Effect(Kind.DROP_ANSWER if closes else Kind.LOSE_ANSWER)
        return self.order(effect, Choice(api, topic, client), times=times, after=after)

    def close(
        self,
        *,
        api: str | None = None,
        topic: str | None = None,
        client: str | None = None,
        times: int = 1,
        after: int = 0,
    ) -> Fault:
        """Close the connection in place of carrying requests out."""
        return self.order(Effect(Kind.CLOSE), Choice(api, topic, client), times=times, after=after)

    def error(
        self,
        code: ErrorCode | str,
        *,
        api: str | None = None,
        topic: str | None = None,
        client: str | None = None,
        times: int = 1,
        after: int = 0,
        carries_out: bool = False,
        milliseconds: int = 0,
    ) -> Fault:
        """Refuse requests with an error, such as "NOT_ENOUGH_REPLICAS", as Kafka answers a whole request with one error.

        With `carries_out` the request is carried out first, as before Kafka's NOT_ENOUGH_REPLICAS_AFTER_APPEND and
        REQUEST_TIMED_OUT. With `milliseconds` the client learns of the refusal later; what it sends behind the request
        meanwhile is carried out. Raises ValueError for a name that is no error of Kafka.
        """
        kind = Kind.ERROR_AFTER if carries_out else Kind.ERROR
        effect = Effect(kind, _time(milliseconds), error_code(code))
        return self.order(effect, Choice(api, topic, client), times=times, after=after)

    def delay(
        self,
        milliseconds: int,
        *,
        api: str | None = None,
        topic: str | None = None,
        client: str | None = None,
        times: int = 1,
        after: int = 0,
    ) -> Fault:
        """Answer requests later; they are carried out at once. Later requests of the connection wait as well."""
        effect = Effect(Kind.DELAY, _time(milliseconds))
        return self.order(effect, Choice(api, topic, client), times=times, after=after)

    def corrupt(
        self, *, topic: str | None = None, client: str | None = None, times: int = 1, after: int = 0
    ) -> Fault:
        """Flip one bit of the records in answers to fetches, so that their CRC does not match. Answers without records are spared."""
        return self.order(Effect(Kind.CORRUPT), Choice("Fetch", topic, client), times=times, after=after)

    def throttle(
        self,
        milliseconds: int,
        *,
        api: str | None = None,
        topic: str | None = None,
        client: str | None = None,
        times: int = 1,
        after: int = 0,
    ) -> Fault:
        """Tell clients in answers to wait, as a quota does."""
        effect = Effect(Kind.THROTTLE, _time(milliseconds))
        return self.order(effect, Choice(api, topic, client), times=times, after=after)

    def not_leader(self, *, topic: str | None = None, times: int = 1, after: int = 0) -> Fault:
        """Refuse Produce requests with NOT_LEADER_OR_FOLLOWER, after which a client asks who leads the partition now."""
        return self.error(
            ErrorCode.not_leader_or_follower, api="Produce", topic=topic, times=times, after=after
        )

    def coordinator_moves(self, *, api: str = "OffsetCommit", times: int = 1, after: int = 0) -> Fault:
        """Refuse requests with NOT_COORDINATOR, after which a client looks for its coordinator again.

        Other APIs of coordinators: Heartbeat, JoinGroup, TxnOffsetCommit, EndTxn, ...
        """
        return self.error(ErrorCode.not_coordinator, api=api, times=times, after=after)

    def watch(self, *, api: str | None = None, topic: str | None = None, client: str | None = None) -> Fault:
        """Count requests and do nothing to them."""
        return self.order(Effect(Kind.WATCH), Choice(api, topic, client), times=EVER)

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
    ) -> Fault:
        """Let the share `rate` of the requests fail, each in a way that the `seed` chooses: at most `times`, three in a row.

        The same requests in the same order meet the same faults. The text of the fault names the seed.
        Clients retry after each of these faults; a sound application loses nothing. Raises ValueError.
        """
        effects = RandomEffects(seed, rate, kinds)
        fault = Fault(
            f"script of seed {seed}, rate {rate:g}",
            _known(Choice(api, topic, client)),
            effects.pick,
            times=times,
        )
        return self._add(fault)

    def order(self, effect: Effect, choice: Choice, *, times: int = 1, after: int = 0) -> Fault:
        """Let requests of a choice fail. Raises ValueError for an API that does not exist."""
        return self._add(Fault(str(effect), _known(choice), lambda _: effect, after=after, times=times))

    # --- parts

    @contextmanager
    def partition_offline(self, topic: str, partition: int = 0) -> Iterator[Fault]:
        """Take a partition offline, as after a failed write: clients get KAFKA_STORAGE_ERROR. Recover it at the end.

        What was not flushed stays, because the disk has not failed. The fault counts the requests to the topic meanwhile.
        Raises LookupError if there is no such partition.
        """
        self._run(lambda: self._parts.take_offline(topic, partition))
        try:
            with self.partition_watched(topic, partition) as watched:
                yield watched
        finally:
            self._run(lambda: self._parts.bring_back(topic, partition), is_optional=True)

    @contextmanager
    def disk_full(self) -> Iterator[Fault]:
        """Let the disk seem to be full: producers are refused until the end of the block, and nothing is lost.

        The fault counts the Produce requests meanwhile.
        """
        self._parts.fill_disk(True)
        self._run(self._parts.check_disk, is_optional=True)
        try:
            with self.disk_watched() as watched:
                yield watched
        finally:
            self._parts.fill_disk(False)
            self._run(self._parts.check_disk, is_optional=True)

    def expire_producer(self, producer_id: int) -> int:
        """Forget a producer in all partitions, as after `producer.id.expiration.ms`; return in how many it was known.

        Its next batch with a sequence above 0 is refused with UNKNOWN_PRODUCER_ID or taken as its first, as Kafka does.
        """
        count = self._run(lambda: self._parts.expire_producer(producer_id))
        assert isinstance(count, int)
        return count

    def fence(self, transactional_id: str) -> None:
        """Fence the producer of a transactional id, and abort its open transaction, as another producer with this id would.

        Raises LookupError if there is no such transactional id.
        """
        self._run(lambda: self._parts.fence(transactional_id))

    def partition_watched(self, topic: str, partition: int) -> Fault:
        """Count the requests to the topic of a partition that is offline."""
        return self._watch(f"partition {topic}-{partition} offline", Choice(topic=topic))

    def disk_watched(self) -> Fault:
        """Count the Produce requests while the disk is full."""
        return self._watch("disk full", Choice("Produce"))

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
