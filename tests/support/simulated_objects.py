"""An object store in memory whose calls fail, hang and take effect late, as drawn from a seed.

A `SimulatedBucket` holds the objects; each gateway of a test has its own `SimulatedObjects` on it, with
faults of its own. Nothing here runs in a thread or reads a clock: the effect of a call is a timer of the
running loop, also of a loop in virtual time. The effect happens when its moment has come, whether or not
somebody still waits for the answer.
"""

from __future__ import annotations

import asyncio
import contextvars
import enum
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import md5
from random import Random
from typing import Final, TypeVar

from seqgate.gateway.cluster.objects.objects import (
    AlreadyThere,
    Buffer,
    Changed,
    Entry,
    Missing,
    Refused,
    StoreFailed,
    check_key,
    check_prefix,
    joined,
)

T = TypeVar("T")
EPOCH_S: Final = 1_700_000_000
"""The time of day at which a loop's time is 0, for the times in listings."""


class Fate(enum.Enum):
    """The outcome of one call to the simulated bucket."""

    CARRIED_OUT = "carried out"
    FAILS_BEFORE = "fails before the effect"
    FAILS_AFTER = "fails after the effect"
    LANDS_LATE = "fails, and takes effect later"
    SILENT_BEFORE = "gets no answer, and has no effect"
    SILENT_AFTER = "gets no answer, and has its effect"
    CONFLICTS_BEFORE = "409, without an effect"
    CONFLICTS_AFTER = "409, after the effect"


_HAS_EFFECT: Final = {
    Fate.CARRIED_OUT,
    Fate.FAILS_AFTER,
    Fate.LANDS_LATE,
    Fate.SILENT_AFTER,
    Fate.CONFLICTS_AFTER,
}
_SILENT: Final = {Fate.SILENT_BEFORE, Fate.SILENT_AFTER}
_CONFLICTS: Final = {Fate.CONFLICTS_BEFORE, Fate.CONFLICTS_AFTER}


@dataclass(frozen=True)
class Faults:
    """The chances of faults, each per call, and the times between which latencies are drawn."""

    latency_s: tuple[float, float] = (0.001, 0.02)
    """The time until the effect, and again the time from the effect to the answer."""
    slow: float = 0.0
    slow_latency_s: float = 60.0
    """The longest latency of a slow call; a call that is slower than the client's timeout takes effect after
    the client gave up.
    """
    slow_creates_below: str = ""
    """If set, only creates of keys with this prefix are slow."""
    fails_before: float = 0.0
    fails_after: float = 0.0
    lands_late: float = 0.0
    late_s: float = 120.0
    """The longest time from the answer to the effect of a call that takes effect late."""
    silent: float = 0.0
    conflicts: float = 0.0
    stale_listing: float = 0.0
    stale_s: float = 5.0
    """The longest time by which a stale listing lags."""
    writes_per_second: int | None = None
    """Writes of this client that are carried out per second; the others fail at once (503 SlowDown)."""


CALM: Final = Faults()
ROUGH: Final = Faults(
    slow=0.03,
    slow_latency_s=40.0,
    fails_before=0.06,
    fails_after=0.06,
    lands_late=0.03,
    silent=0.03,
    conflicts=0.03,
    stale_listing=0.2,
)


@dataclass
class Call:
    """One call in the bucket's history. Times are those of the loop; None means that it never happened."""

    client: str
    operation: str
    key: str
    content: bytes | None
    began_s: float
    fate: Fate
    effect_s: float | None = None
    """When the call was carried out; a creation that found an object was carried out too."""
    refused_by: str = ""
    """The error that the effect met: AlreadyThere, Missing, Changed."""
    ended_s: float | None = None
    outcome: str = ""
    """What the client was told: the name of the error, or "ok"."""


@dataclass(frozen=True)
class Stored:
    """An object of the simulated bucket: its content, and when it was created, modified and deleted."""

    content: bytes
    created_s: float
    modified_s: float
    deleted_s: float = float("inf")


@dataclass
class SimulatedBucket:
    """The objects, and all calls of all clients. Make it outside of a process of the simulation: its timers
    outlive processes.
    """

    objects: dict[str, Stored] = field(default_factory=dict)
    deleted: list[tuple[str, Stored]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    outages: list[tuple[float, float]] = field(default_factory=list)
    """Times of the loop, from and to, in which no call reaches the bucket."""
    page_size: int = 1000
    context: contextvars.Context = field(default_factory=contextvars.copy_context)

    def content(self, key: str) -> bytes | None:
        """Return the content of an object, or None."""
        stored = self.objects.get(key)
        return None if stored is None else stored.content

    def keys(self, prefix: str = "") -> list[str]:
        return sorted(key for key in self.objects if key.startswith(prefix))

    def is_out(self, now_s: float) -> bool:
        return any(first <= now_s < end for first, end in self.outages)

    # --- effects, each at one moment

    def create(self, key: str, content: bytes, now_s: float) -> None:
        if key in self.objects:
            raise AlreadyThere(key)
        self.objects[key] = Stored(content, now_s, now_s)

    def get(self, key: str) -> bytes:
        if key not in self.objects:
            raise Missing(key)
        return self.objects[key].content

    def replace(self, key: str, content: bytes, version: str | None, now_s: float) -> str:
        stored = self.objects.get(key)
        if (None if stored is None else version_of(stored.content)) != version:
            raise Changed(key)
        self.objects[key] = Stored(content, now_s if stored is None else stored.created_s, now_s)
        return version_of(content)

    def delete(self, key: str, now_s: float) -> None:
        stored = self.objects.pop(key, None)
        if stored is not None:
            self.deleted.append((key, replace(stored, deleted_s=now_s)))

    def page(self, prefix: str, after: str, at_s: float) -> list[Entry]:
        """Return the next page of a listing that shows the creations and deletions until `at_s`."""
        there = {key: stored for key, stored in self.objects.items() if stored.created_s <= at_s}
        there.update(
            (key, stored) for key, stored in self.deleted if stored.created_s <= at_s < stored.deleted_s
        )
        keys = sorted(key for key in there if key.startswith(prefix))
        first = bisect_right(keys, after)
        return [
            Entry(key, len(there[key].content), int((EPOCH_S + there[key].modified_s) * 1000))
            for key in keys[first : first + self.page_size]
        ]


def version_of(content: bytes) -> str:
    """Return the version of a content as S3 does: an MD5, so that equal contents have equal versions."""
    return md5(content, usedforsecurity=False).hexdigest()


class SimulatedObjects:
    """An `ObjectStore` of one client on a bucket. `faults`, `is_cut_off` and `refusal` can be set at any
    time.
    """

    def __init__(
        self,
        bucket: SimulatedBucket | None = None,
        *,
        seed: int = 1,
        faults: Faults = CALM,
        timeout_s: float = 30.0,
        name: str = "client",
    ) -> None:
        self.bucket = bucket if bucket is not None else SimulatedBucket()
        self.faults = faults
        self.is_cut_off = False
        """Whether this client's calls fail as in an outage, while other clients reach the bucket."""
        self.refusal = ""
        """The sentence with which the store refuses every call of this client; empty when it refuses none."""
        self.is_closed = False
        self._name = name
        self._timeout_s = timeout_s
        self._chance = Random(f"{seed} {name}")
        self._planned: dict[str, list[Fate]] = {}
        self._second = 0
        self._writes = 0

    def plan(self, operation: str, *fates: Fate) -> None:
        """Let the next calls of an operation (create, get, replace, list, delete) have these fates instead of
        drawn ones.
        """
        self._planned.setdefault(operation, []).extend(fates)

    # --- the port

    async def create(self, key: str, content: bytes | Sequence[Buffer]) -> None:
        check_key(key)
        whole = bytes(joined(content))
        await self._call("create", key, lambda now_s: self.bucket.create(key, whole, now_s), whole)

    async def get(self, key: str, first: int = 0, size_bytes: int | None = None) -> bytes:
        check_key(key)
        end = None if size_bytes is None else first + size_bytes
        return await self._call("get", key, lambda _: self.bucket.get(key)[first:end])

    async def get_end(self, key: str, size_bytes: int) -> bytes:
        check_key(key)
        content = await self._call("get", key, lambda _: self.bucket.get(key))
        return content[max(0, len(content) - size_bytes) :]

    async def read(self, key: str) -> tuple[bytes, str]:
        check_key(key)
        content = await self._call("get", key, lambda _: self.bucket.get(key))
        return content, version_of(content)

    async def replace(self, key: str, content: bytes, version: str | None) -> str:
        check_key(key)
        return await self._call(
            "replace", key, lambda now_s: self.bucket.replace(key, content, version, now_s), content
        )

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[Entry]:
        check_prefix(prefix)
        lag_s = 0.0
        if self._chance.random() < self.faults.stale_listing:
            lag_s = self._chance.uniform(0, self.faults.stale_s)

        def page(now_s: float) -> list[Entry]:
            return self.bucket.page(prefix, after, now_s - lag_s)

        is_whole = False
        while not is_whole:
            entries = await self._call("list", prefix, page)
            for entry in entries:
                yield entry
            is_whole = len(entries) < self.bucket.page_size
            after = entries[-1].key if entries else after

    async def delete(self, key: str) -> None:
        check_key(key)
        await self._call("delete", key, lambda now_s: self.bucket.delete(key, now_s), b"")

    async def close(self) -> None:
        self.is_closed = True

    # --- calls

    async def _call(
        self, operation: str, key: str, effect: Callable[[float], T], content: bytes | None = None
    ) -> T:
        """Let the effect happen and the answer come as the call's fate wants. `content` is None for reads."""
        if self.is_closed:
            raise RuntimeError(f"{operation} {key!r} of a closed store")
        loop = asyncio.get_running_loop()
        call = Call(
            self._name, operation, key, content, loop.time(), self._fate(operation, content is not None)
        )
        self.bucket.calls.append(call)
        answer: asyncio.Future[T] = loop.create_future()
        if self.refusal:
            self._fail(call, answer, Refused(self.refusal))
        elif content is not None and self._is_throttled(loop.time()):
            call.fate = Fate.FAILS_BEFORE
            self._fail(call, answer, StoreFailed("503 SlowDown"))
        else:
            self._begin(loop, call, effect, answer)
        return await answer

    def _begin(
        self,
        loop: asyncio.AbstractEventLoop,
        call: Call,
        effect: Callable[[float], T],
        answer: asyncio.Future[T],
    ) -> None:
        until_effect_s, until_answer_s = self._latency_s(call), self._latency_s(call)
        late_s = self._chance.uniform(0, self.faults.late_s)

        def later(delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
            return loop.call_later(delay_s, callback, context=self.bucket.context)

        def carry_out() -> T:
            call.effect_s = loop.time()
            try:
                return effect(loop.time())
            except (AlreadyThere, Missing, Changed) as error:
                call.refused_by = type(error).__name__
                raise

        def arrive() -> None:
            """Reach the store: the effect happens now, later or never, and the answer leaves."""
            if self.is_cut_off or self.bucket.is_out(loop.time()):
                call.fate = self._chance.choice((Fate.FAILS_BEFORE, Fate.SILENT_BEFORE))
            result: list[T] = []
            error: Exception = StoreFailed(f"{call.operation} {call.key!r}: {call.fate.value}")
            if call.fate is Fate.LANDS_LATE:
                later(until_answer_s + late_s, lambda: _quietly(carry_out))
            elif call.fate in _HAS_EFFECT:
                try:
                    result.append(carry_out())
                except (AlreadyThere, Missing, Changed) as refusal:
                    error = refusal if call.fate is Fate.CARRIED_OUT else error
            if call.fate in _CONFLICTS:
                error = AlreadyThere(call.key) if call.operation == "create" else Changed(call.key)
            if call.fate is Fate.CARRIED_OUT and result:
                later(until_answer_s, lambda: self._succeed(call, answer, result[0]))
            elif call.fate not in _SILENT:
                later(until_answer_s, lambda: self._fail(call, answer, error))

        later(until_effect_s, arrive)
        no_answer = StoreFailed(f"{call.operation} {call.key!r}: no answer in {self._timeout_s} s")
        give_up = later(self._timeout_s, lambda: self._fail(call, answer, no_answer))
        answer.add_done_callback(lambda _: give_up.cancel(), context=self.bucket.context)

    def _fate(self, operation: str, is_write: bool) -> Fate:
        planned = self._planned.get(operation)
        if planned:
            return planned.pop(0)
        faults = self.faults
        chances = [
            (Fate.FAILS_BEFORE, faults.fails_before),
            (Fate.FAILS_AFTER, faults.fails_after),
            (Fate.LANDS_LATE, faults.lands_late if is_write else 0.0),
            (Fate.SILENT_BEFORE, faults.silent / 2),
            (Fate.SILENT_AFTER, faults.silent / 2),
            (Fate.CONFLICTS_BEFORE, faults.conflicts / 2 if operation in {"create", "replace"} else 0.0),
            (Fate.CONFLICTS_AFTER, faults.conflicts / 2 if operation in {"create", "replace"} else 0.0),
        ]
        drawn = self._chance.random()
        for fate, chance in chances:
            drawn -= chance
            if drawn < 0:
                return fate
        return Fate.CARRIED_OUT

    def _latency_s(self, call: Call) -> float:
        prefix = self.faults.slow_creates_below
        may_be_slow = not prefix or (call.operation == "create" and call.key.startswith(prefix))
        if self._chance.random() < self.faults.slow and may_be_slow:
            return self._chance.uniform(0, self.faults.slow_latency_s)
        return self._chance.uniform(*self.faults.latency_s)

    def _is_throttled(self, now_s: float) -> bool:
        limit = self.faults.writes_per_second
        if int(now_s) != self._second:
            self._second, self._writes = int(now_s), 0
        self._writes += 1
        return limit is not None and self._writes > limit

    @staticmethod
    def _succeed(call: Call, answer: asyncio.Future[T], result: T) -> None:
        if not answer.done():
            call.ended_s, call.outcome = answer.get_loop().time(), "ok"
            answer.set_result(result)

    @staticmethod
    def _fail(call: Call, answer: asyncio.Future[T], error: Exception) -> None:
        if not answer.done():
            call.ended_s, call.outcome = answer.get_loop().time(), type(error).__name__
            answer.set_exception(error)
            answer.exception()  # marks the error as seen: the caller may have died meanwhile


def _quietly(effect: Callable[[], object]) -> None:
    """Run an effect whose result nobody hears of."""
    try:
        effect()
    except (AlreadyThere, Missing, Changed):
        return


def outcomes(calls: Iterable[Call]) -> dict[str, int]:
    """Return how many calls had each outcome; "" counts those that nobody waited for to the end."""
    counts: dict[str, int] = {}
    for call in calls:
        counts[call.outcome] = counts.get(call.outcome, 0) + 1
    return counts
