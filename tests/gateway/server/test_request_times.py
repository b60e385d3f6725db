"""Requests are counted and timed by API: at once or later, repeated, charged, abandoned, before a login."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.handlers import APIS
from seqgate.gateway.handlers.answering.api import NOT_REPEATED, CloseConnection, Deferred
from seqgate.gateway.protocol.frames import MalformedRequest
from seqgate.gateway.server.dispatcher import ChargedAnswer, Dispatcher, RequestTimes, TimedRepeats
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import FakePeer, open_node
from tests.gateway.server.quota_client import Client, limit
from tests.support.wire import encode, encode_header

PRODUCE, FETCH, API_VERSIONS = 0, 1, 18


class Clock:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def times(clock: Clock) -> RequestTimes:
    return RequestTimes(clock)


def measured(times: RequestTimes, api_key: int = FETCH) -> tuple[int, float]:
    """Return the number of timed requests, and their sum in seconds."""
    durations = times.durations.get(api_key)
    return (0, 0.0) if durations is None else (durations.count, durations.sum_s)


class TestOneRequest:
    def test_that_is_answered_at_once(self, times: RequestTimes, clock: Clock) -> None:
        clock.now_s += 2
        times.began(FETCH, 100.0, b"answer")
        times.began(FETCH, 101.0, None)
        assert measured(times) == (2, 3.0)

    def test_that_is_answered_later(self, times: RequestTimes, clock: Clock) -> None:
        deferred = Deferred()
        heard: list[tuple[int, float]] = []
        deferred.on_resolved = lambda: heard.append(measured(times))
        times.began(FETCH, 100.0, deferred)
        assert measured(times) == (0, 0.0)
        clock.now_s += 5
        deferred.resolve(b"answer")
        assert heard == [(1, 5.0)], "the time ends before the answer is sent"
        deferred.resolve(b"again")
        assert measured(times) == (1, 5.0)

    def test_whose_answer_is_there_already(self, times: RequestTimes, clock: Clock) -> None:
        deferred = Deferred()
        deferred.resolve(b"answer")
        clock.now_s += 1
        times.began(FETCH, 100.0, deferred)
        clock.now_s += 1
        assert measured(times) == (1, 1.0)
        assert deferred.on_answered is None

    def test_that_fails(self, times: RequestTimes, clock: Clock) -> None:
        deferred = Deferred()
        times.began(FETCH, 100.0, deferred)
        clock.now_s += 1
        deferred.fail()
        assert measured(times) == (1, 1.0)

    def test_whose_client_hangs_up(self, times: RequestTimes, clock: Clock) -> None:
        deferred = Deferred()
        times.began(FETCH, 100.0, deferred)
        deferred.abandon()
        clock.now_s += 3600
        deferred.resolve(b"nobody reads this")
        assert measured(times) == (0, 0.0)

    def test_that_follows_other_work(self, times: RequestTimes, clock: Clock) -> None:
        """A large request is decoded in a thread; its handler's answer comes through another Deferred."""
        outer, inner = Deferred(), Deferred()
        times.began(FETCH, 100.0, outer)
        outer.follow(inner)
        clock.now_s += 4
        inner.resolve(b"answer")
        assert measured(times) == (1, 4.0)

    def test_that_is_charged(self, times: RequestTimes, clock: Clock) -> None:
        charge: Any = _Charge()
        inner = Deferred()
        times.began(FETCH, 100.0, inner)
        charged = ChargedAnswer(charge, FakePeer(), FETCH, 12).of(inner)
        assert isinstance(charged, Deferred)
        clock.now_s += 4
        inner.resolve(b"answer")
        assert charged.answer == b"answer"
        assert measured(times) == (1, 4.0)

    def test_that_is_charged_and_abandoned(self, times: RequestTimes) -> None:
        charge: Any = _Charge()
        inner = Deferred()
        times.began(FETCH, 100.0, inner)
        charged = ChargedAnswer(charge, FakePeer(), FETCH, 12).of(inner)
        assert isinstance(charged, Deferred)
        charged.abandon()
        inner.resolve(b"answer")
        assert measured(times) == (0, 0.0)


class _Charge:
    throttle_ms = 0

    def count_time(self) -> None: ...


class FakeRepeats:
    """Repeats whose outcome a test chooses; each takes a second."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.outcome: Any = b"answer"
        self.begun = 0

    def begin(self, *_: object) -> Any:
        self.clock.now_s += 1
        if self.outcome is NOT_REPEATED:
            return self.outcome
        self.begun += 1
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def learn(self, *_: object) -> None: ...


class TestRepeats:
    @pytest.fixture
    def repeats(self, clock: Clock) -> FakeRepeats:
        return FakeRepeats(clock)

    @pytest.fixture
    def next_begin_with(self, times: RequestTimes, repeats: FakeRepeats) -> list[Any]:
        """The repeats that requests begin with: the last of the list."""
        used: list[Any] = [repeats]
        times.follow(PRODUCE, repeats, used.append)
        return used

    def begin(self, used: list[Any], count: int = 1) -> Any:
        return [used[-1].begin(FakePeer(), memoryview(b""), 1, 0) for _ in range(count)][-1]

    def test_only_the_next_one_is_timed(
        self, times: RequestTimes, repeats: FakeRepeats, next_begin_with: list[Any]
    ) -> None:
        self.begin(next_begin_with, 3)
        assert measured(times, PRODUCE) == (0, 0.0)
        times.arm()
        assert isinstance(next_begin_with[-1], TimedRepeats)
        assert self.begin(next_begin_with) == b"answer"
        assert next_begin_with[-1] is repeats
        assert measured(times, PRODUCE) == (4, 4.0), "it counts for those before, too"
        self.begin(next_begin_with, 5)
        assert measured(times, PRODUCE) == (4, 4.0)
        assert times.counts() == {PRODUCE: 9}

    def test_a_second_look_without_a_request_between_changes_nothing(
        self, times: RequestTimes, repeats: FakeRepeats, next_begin_with: list[Any]
    ) -> None:
        times.arm()
        times.arm()
        self.begin(next_begin_with)
        assert next_begin_with[-1] is repeats
        assert measured(times, PRODUCE) == (1, 1.0)

    def test_what_is_no_repeat_does_not_count(
        self, times: RequestTimes, repeats: FakeRepeats, next_begin_with: list[Any]
    ) -> None:
        repeats.outcome = NOT_REPEATED
        times.arm()
        assert self.begin(next_begin_with, 5) is NOT_REPEATED
        assert times.counts() == {PRODUCE: 0}
        assert measured(times, PRODUCE) == (0, 0.0)

    def test_an_error_counts(
        self, times: RequestTimes, repeats: FakeRepeats, next_begin_with: list[Any]
    ) -> None:
        repeats.outcome = CloseConnection("no")
        times.arm()
        for _ in range(2):
            with pytest.raises(CloseConnection):
                self.begin(next_begin_with)
        assert times.counts() == {PRODUCE: 2}
        assert next_begin_with[-1] is repeats

    def test_versions_add_up(
        self, times: RequestTimes, repeats: FakeRepeats, next_begin_with: list[Any]
    ) -> None:
        other = FakeRepeats(repeats.clock)
        times.follow(PRODUCE, other, [].append)
        self.begin(next_begin_with, 3)
        self.begin([other], 4)
        times.count(PRODUCE)
        assert times.counts() == {PRODUCE: 8}

    def test_a_later_answer(
        self, times: RequestTimes, repeats: FakeRepeats, next_begin_with: list[Any]
    ) -> None:
        self.begin(next_begin_with, 2)
        deferred = repeats.outcome = Deferred()
        times.arm()
        self.begin(next_begin_with)
        repeats.clock.now_s += 9
        assert measured(times, PRODUCE) == (0, 0.0)
        deferred.resolve(b"answer")
        assert measured(times, PRODUCE) == (3, 30.0)


class TestADispatcher:
    @pytest.fixture
    async def client(self, tmp_path: Path) -> AsyncIterator[Client]:
        async with open_node(tmp_path) as node:
            await create(node, "orders")
            yield Client(node, Dispatcher(APIS, node.services), node.peer)

    async def test_repeats_and_others(self, client: Client) -> None:
        times = client.dispatcher.time_requests()
        for _ in range(6):
            await client.produce()
        times.arm()
        for _ in range(3):
            await client.produce()
        await client.fetch()
        assert times.counts() == {PRODUCE: 9, FETCH: 1}
        assert measured(times, PRODUCE)[0] == 1 + 6
        assert measured(times, FETCH)[0] == 1

    async def test_under_quotas(self, client: Client) -> None:
        times = client.dispatcher.time_requests()
        await client.produce()
        await limit(client.node, "producer_byte_rate", 1e9)
        for _ in range(4):
            await client.produce()
        await client.fetch()
        await limit(client.node, "producer_byte_rate", None)
        await client.produce()
        assert times.counts() == {PRODUCE: 6, FETCH: 1}
        assert measured(times, FETCH)[0] == 1
        assert client.dispatcher.requests == 7

    async def test_before_a_login(self, client: Client) -> None:
        times = client.dispatcher.time_requests()
        frame = encode("api_versions", 3, {"client_software_name": "x", "client_software_version": "1"})
        client.dispatcher.begin_uncharged(memoryview(frame), client.peer)
        assert times.counts() == {API_VERSIONS: 1}

    async def test_what_is_not_served_does_not_count(self, client: Client) -> None:
        times = client.dispatcher.time_requests()
        for api_key in (5, 999, -1, 32767):
            frame = encode_header(api_key, 0, 1, flexible=False, client_id="x")
            with pytest.raises(CloseConnection):
                client.dispatcher.begin(memoryview(frame), client.peer)
        for frame in (b"", b"\x00", b"\x00\x03\x00"):
            with pytest.raises(MalformedRequest):
                client.dispatcher.begin(memoryview(frame), client.peer)
        assert times.counts() == {}
        assert times.durations == {}

    async def test_without_times_nothing_is_wrapped(self, client: Client) -> None:
        for _ in range(3):
            await client.produce()
        assert not any(isinstance(repeats, TimedRepeats) for repeats in client.dispatcher._repeats.values())
        assert client.node.services.partitions.append_times is None

    async def test_a_waiting_fetch_is_timed_when_it_is_answered(self, client: Client) -> None:
        times = client.dispatcher.time_requests()
        await client.produce()
        place = {"partition": 0, "fetch_offset": 1, "partition_max_bytes": 1000}
        frame = encode(
            "fetch",
            11,
            {
                "replica_id": -1,
                "max_wait": 60_000,
                "min_bytes": 1,
                "max_bytes": 1000,
                "topics": [{"topic": "orders", "partitions": [place]}],
            },
        )
        waiting = [client.dispatcher.begin(memoryview(frame), client.peer) for _ in range(2)]
        answered, abandoned = waiting
        assert isinstance(answered, Deferred)
        assert isinstance(abandoned, Deferred)
        done = asyncio.Event()
        answered.on_resolved = done.set
        abandoned.abandon()
        client.node.clock.time_ms += 3_000
        await client.produce()
        await asyncio.wait_for(done.wait(), 60)
        assert times.counts()[FETCH] == 2
        assert measured(times, FETCH) == (1, 3.0)
