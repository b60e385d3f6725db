from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any
from uuid import UUID

import pytest

from seqgate.gateway.cluster.objects.objects import Refused, StoreFailed
from seqgate.gateway.cluster.wal.session_wal import CALL_LIMIT_S, NEVER_S, SessionFenced, SessionWal
from seqgate.gateway.cluster.wal.sessions import Session
from seqgate.gateway.cluster.wal.wal_object import DataRow, Seal, WalObject, decode, encode, encode_seal
from tests.gateway.cluster.wal.held_objects import HeldObjects
from tests.simulation.loop import SimulatedLoop

NONCE = bytes(16)
SESSION = Session(4, 1, NONCE, "cluster")
ROW = DataRow(UUID(int=7), 0, 0, 0, 1, 0, 0, 5)
TAKEN_OVER = encode_seal(Seal(1, 4, 0, bytes(15) + b"t", 2, "node 1 is silent"))


def fail(*_: object) -> None:
    raise KeyError("planted")


class Scene:
    """A session over a held store; `confirmed` has the numbers of the objects that were confirmed, in order."""

    def __init__(self, puts_in_flight: int = 4, call_limit_s: float = CALL_LIMIT_S) -> None:
        self.store = HeldObjects()
        self.wal = SessionWal(
            self.store,  # type: ignore[arg-type]
            SESSION,
            puts_in_flight=puts_in_flight,
            chance=Random(1),
            call_limit_s=call_limit_s,
        )
        self.confirmed: list[int] = []
        self.fenced: list[str] = []
        self.wal.on_fenced.append(self.fenced.append)

    def put(self, *numbers: int) -> None:
        for number in numbers:
            self.wal.put([ROW], [b"%05d" % number], lambda number=number: self.confirmed.append(number))  # type: ignore[misc]

    async def answer(self, *seqs: int) -> None:
        for seq in seqs:
            (await self.store.next("create", seq)).answer()
        await asyncio.sleep(0.001)


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, None]], None]:
    def in_virtual_time(scene: Coroutine[Any, Any, None]) -> None:
        loop = SimulatedLoop(Random(1))
        loop.run_until_complete(scene)
        assert not loop.unhandled
        loop.close()

    return in_virtual_time


Run = Callable[[Coroutine[Any, Any, None]], None]


class TestConfirming:
    def test_an_object_is_confirmed_by_its_create(self, run: Run) -> None:
        async def scene() -> None:
            at = Scene()
            at.put(0)
            assert at.wal.in_flight == 1
            assert at.wal.unconfirmed_bytes > 5
            await asyncio.sleep(1)
            assert at.confirmed == []
            await at.answer(0)
            assert at.confirmed == [0]
            assert (at.wal.in_flight, at.wal.unconfirmed_bytes) == (0, 0)
            stored = decode(at.store.stored["wal/1/4/" + "0" * 20], "key")
            assert stored == WalObject(1, 4, 0, NONCE, [ROW], [b"00000"])

        run(scene())

    def test_a_later_object_waits_for_the_earlier_ones(self, run: Run) -> None:
        async def scene() -> None:
            at = Scene()
            at.put(0, 1, 2)
            await at.answer(2, 1)
            assert at.confirmed == []
            await at.answer(0)
            assert at.confirmed == [0, 1, 2]

        run(scene())

    def test_at_most_so_many_objects_are_sent(self, run: Run) -> None:
        async def scene() -> None:
            at = Scene(puts_in_flight=2)
            at.put(0, 1, 2, 3)
            await at.answer(1)
            assert [call.seq for call in at.store.calls] == [0]
            assert at.wal.in_flight == 4
            await at.answer(0)
            assert at.confirmed == [0, 1]
            assert [call.seq for call in at.store.calls] == [2, 3]

        run(scene())

    def test_who_is_confirmed_may_put_the_next_object(self, run: Run) -> None:
        async def scene() -> None:
            at = Scene(puts_in_flight=1)
            at.wal.put([], [], lambda: at.put(7))
            await at.answer(0, 1)
            assert at.confirmed == [7]

        run(scene())

    def test_an_error_behind_one_object_does_not_stop_the_next(
        self, run: Run, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def scene() -> None:
            at = Scene()
            at.wal.put([], [], fail)
            at.put(1)
            await at.answer(0, 1)
            assert at.confirmed == [1]

        run(scene())
        assert "what follows the confirmation of wal/1/4/00000000000000000000 failed" in caplog.text

    def test_rows_that_no_reader_accepts_take_no_place(self, run: Run) -> None:
        async def scene() -> None:
            at = Scene()
            with pytest.raises(ValueError, match="is 5 bytes long, and has 4 bytes"):
                at.wal.put([ROW], [b"1234"], lambda: None)
            at.put(0)
            await at.answer(0)
            assert at.confirmed == [0]

        run(scene())

    def test_the_lease_counts_from_the_first_attempt(self, run: Run) -> None:
        async def scene() -> None:
            at = Scene()
            assert at.wal.last_confirmed_sent_s == NEVER_S
            await asyncio.sleep(100)
            at.put(0, 1)
            await at.answer(1)
            assert at.wal.last_confirmed_sent_s == NEVER_S
            (await at.store.next("create", 0)).lose()
            await asyncio.sleep(50)
            (await at.store.next("look", 0)).answer()
            await at.answer(0)
            assert at.confirmed == [0, 1]
            assert at.wal.last_confirmed_sent_s == pytest.approx(100, abs=0.1)

        run(scene())


class TestHolding:
    def test_objects_are_created_and_not_confirmed_until_the_release(self, run: Run) -> None:
        async def scene() -> None:
            at = Scene(puts_in_flight=2)
            at.put(0, 1)
            await at.answer(0)
            assert at.wal.hold() == 1
            at.put(2, 3)
            await at.answer(1, 2)
            assert (at.confirmed, at.wal.confirmed_end) == ([0], 1)
            assert not at.store.calls, "a held session has as many objects in flight as any other"
            at.wal.release()
            assert at.confirmed == [0, 1, 2]
            await at.answer(3)
            assert at.confirmed == [0, 1, 2, 3]

        run(scene())

    def test_a_session_that_has_ended_is_not_held(self, run: Run) -> None:
        async def scene() -> None:
            at = Scene()
            at.store.put(1, 4, 0, TAKEN_OVER)
            at.put(0)
            assert at.wal.hold() == 0
            await at.answer(0)
            (await at.store.next("look", 0)).answer()
            await asyncio.sleep(0.001)
            assert at.fenced
            at.wal.release()
            assert at.confirmed == []
            with pytest.raises(SessionFenced):
                at.wal.hold()

        run(scene())


class TestFailures:
    def test_a_lost_answer_is_found_by_a_look(self, run: Run) -> None:
        async def scene() -> None:
            at = Scene()
            at.put(0)
            call = await at.store.next("create", 0)
            call.take_effect()
            call.lose()
            look = await at.store.next("look", 0)
            assert at.confirmed == []
            look.answer()
            await asyncio.sleep(0.001)
            assert at.confirmed == [0]

        run(scene())

    def test_a_create_without_effect_is_sent_again_with_the_same_bytes(self, run: Run) -> None:
        async def scene() -> None:
            at = Scene()
            at.put(0)
            first = await at.store.next("create", 0)
            first.lose()
            (await at.store.next("look", 0)).answer()
            second = await at.store.next("create", 0)
            assert second.content == first.content
            second.answer()
            await asyncio.sleep(0.001)
            assert at.confirmed == [0]

        run(scene())

    def test_a_first_attempt_that_lands_late_is_our_own(self, run: Run) -> None:
        async def scene() -> None:
            at = Scene()
            at.put(0)
            first = await at.store.next("create", 0)
            first.lose()
            (await at.store.next("look", 0)).answer()
            second = await at.store.next("create", 0)
            first.take_effect()
            second.answer()
            assert at.confirmed == []
            (await at.store.next("look", 0)).answer()
            await asyncio.sleep(0.001)
            assert at.confirmed == [0]

        run(scene())

    def test_a_conflict_without_an_object_is_no_busy_loop(self, run: Run) -> None:
        async def scene() -> None:
            at = Scene()
            at.put(0)
            loop = asyncio.get_running_loop()
            before_s = loop.time()
            for _ in range(20):
                call = await at.store.next("create", 0)
                at.store.stored[call.key] = b"somebody"
                call.answer()
                await asyncio.sleep(0.001)
                del at.store.stored[call.key]
                (await at.store.next("look", 0)).answer()
            assert loop.time() - before_s > 10

        run(scene())

    def test_a_failed_look_is_repeated_and_decides_nothing(self, run: Run) -> None:
        async def scene() -> None:
            at = Scene()
            at.put(0)
            (await at.store.next("create", 0)).lose()
            for _ in range(30):
                (await at.store.next("look", 0)).lose()
            assert at.confirmed == []
            (await at.store.next("look", 0)).answer()
            await at.answer(0)
            assert at.confirmed == [0]

        run(scene())

    def test_after_an_outage_the_object_is_created_at_once(self, run: Run) -> None:
        async def scene() -> None:
            at = Scene()
            at.put(0)
            (await at.store.next("create", 0)).lose()
            for _ in range(30):
                (await at.store.next("look", 0)).lose()
            (await at.store.next("look", 0)).answer()
            loop = asyncio.get_running_loop()
            before_s = loop.time()
            await at.answer(0)
            assert at.confirmed == [0]
            assert loop.time() - before_s < 0.2

        run(scene())

    def test_a_call_without_an_answer_counts_as_failed(self, run: Run) -> None:
        async def scene() -> None:
            at = Scene()
            at.put(0)
            await at.store.next("create", 0)
            await asyncio.sleep(CALL_LIMIT_S)
            await at.store.next("look", 0)
            await asyncio.sleep(CALL_LIMIT_S)
            (await at.store.next("look", 0)).answer()
            await at.answer(0)
            assert at.confirmed == [0]

        run(scene())

    def test_a_call_may_take_as_long_as_its_limit(self, run: Run) -> None:
        async def scene() -> None:
            at = Scene(call_limit_s=10 * CALL_LIMIT_S)
            at.put(0)
            create = await at.store.next("create", 0)
            await asyncio.sleep(9 * CALL_LIMIT_S)
            create.answer()
            await asyncio.sleep(0.001)
            assert at.confirmed == [0]

        run(scene())

    @pytest.mark.parametrize("error", [Refused("no such bucket"), KeyError("a fault in the store's client")])
    def test_any_error_is_survived(self, error: Exception, run: Run) -> None:
        async def scene() -> None:
            at = Scene()
            at.put(0)
            (await at.store.next("create", 0)).answered.set_exception(error)
            (await at.store.next("look", 0)).answered.set_exception(error)
            (await at.store.next("look", 0)).answer()
            await at.answer(0)
            assert at.confirmed == [0]

        run(scene())

    def test_an_outage_is_reported_now_and_then_and_its_end_once(
        self, run: Run, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)

        async def scene() -> None:
            at = Scene()
            at.put(0)
            (await at.store.next("create", 0)).lose()
            loop = asyncio.get_running_loop()
            while loop.time() < 100:
                (await at.store.next("look", 0)).lose()
                await asyncio.sleep(5)
            (await at.store.next("look", 0)).answer()
            await at.answer(0)

        run(scene())
        said = [record.getMessage() for record in caplog.records]
        assert sum("has carried out no call" in line for line in said) == 4
        assert "1 objects with" in said[0]
        assert "503 Slow Down" in said[0]
        assert sum("works again" in line for line in said) == 1

    def test_a_short_failure_is_not_reported(self, run: Run, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)

        async def scene() -> None:
            at = Scene()
            at.put(0)
            (await at.store.next("create", 0)).lose()
            (await at.store.next("look", 0)).answer()
            await at.answer(0)

        run(scene())
        assert not caplog.records


class TestFencing:
    def test_a_seal_ends_the_session(self, run: Run, caplog: pytest.LogCaptureFixture) -> None:
        async def scene() -> None:
            at = Scene()
            at.store.put(1, 4, 0, TAKEN_OVER)
            at.put(0, 1)
            await at.answer(1, 0)
            (await at.store.next("look", 0)).answer()
            await asyncio.sleep(0.001)
            assert at.confirmed == []
            assert at.wal.is_fenced
            assert at.fenced == [
                "Node 2 sealed the session at wal/1/4/00000000000000000000: node 1 is silent"
            ]
            assert (at.wal.in_flight, at.wal.unconfirmed_bytes) == (0, 0)
            at.put(2)
            await asyncio.sleep(1000)
            assert at.store.calls == []
            assert at.confirmed == []

        run(scene())
        assert "must stop: Node 2 sealed the session" in caplog.text

    def test_what_was_confirmed_before_stays(self, run: Run) -> None:
        async def scene() -> None:
            at = Scene()
            at.store.put(1, 4, 1, TAKEN_OVER)
            at.put(0, 1)
            await at.answer(0, 1)
            (await at.store.next("look", 1)).answer()
            await asyncio.sleep(0.001)
            assert at.confirmed == [0]
            assert len(at.fenced) == 1

        run(scene())

    def test_an_answer_after_the_fence_confirms_nothing(self, run: Run) -> None:
        async def scene() -> None:
            at = Scene()
            at.store.put(1, 4, 1, TAKEN_OVER)
            at.put(0, 1)
            first = await at.store.next("create", 0)
            await at.answer(1)
            (await at.store.next("look", 1)).answer()
            await asyncio.sleep(0.001)
            first.take_effect()
            await asyncio.sleep(100)
            assert first.answered.cancelled()
            assert len(at.fenced) == 1
            assert at.confirmed == []
            assert at.store.calls == []

        run(scene())

    def test_all_who_follow_the_fence_are_told(self, run: Run, caplog: pytest.LogCaptureFixture) -> None:
        async def scene() -> None:
            at = Scene()
            at.wal.on_fenced.insert(0, fail)
            at.store.put(1, 4, 0, b"rubbish")
            at.put(0)
            await at.answer(0)
            (await at.store.next("look", 0)).answer()
            await asyncio.sleep(0.001)
            assert len(at.fenced) == 1
            assert "is not its own" in at.fenced[0]

        run(scene())
        assert "what follows the fencing of the session failed" in caplog.text


class TestSealing:
    def test_the_seal_follows_all_objects(self, run: Run) -> None:
        async def scene() -> None:
            at = Scene()
            at.put(0, 1)
            sealing = asyncio.ensure_future(at.wal.seal("stopped"))
            await at.answer(1)
            await asyncio.sleep(10)
            assert [call.seq for call in at.store.calls] == [0]
            await at.answer(0, 2)
            assert await sealing == 2
            stored = at.store.stored["wal/1/4/" + "2".zfill(20)]
            assert decode(stored, "key") == Seal(1, 4, 2, NONCE, 1, "stopped")
            with pytest.raises(RuntimeError, match="session 4 is ending"):
                at.put(2)
            assert await at.wal.seal("again") == 2

        run(scene())

    def test_a_lost_answer_is_found(self, run: Run) -> None:
        async def scene() -> None:
            at = Scene()
            sealing = asyncio.ensure_future(at.wal.seal("stopped"))
            call = await at.store.next("create", 0)
            call.take_effect()
            call.lose()
            (await at.store.next("look", 0)).answer()
            assert await sealing == 0

        run(scene())

    def test_a_taker_that_was_quicker_fences(self, run: Run) -> None:
        async def scene() -> None:
            at = Scene()
            at.store.put(1, 4, 0, TAKEN_OVER)
            sealing = asyncio.ensure_future(at.wal.seal("stopped"))
            await at.answer(0)
            (await at.store.next("look", 0)).answer()
            with pytest.raises(SessionFenced, match="Node 2 sealed the session"):
                await sealing
            assert len(at.fenced) == 1

        run(scene())

    def test_a_fence_before_ends_the_waiting(self, run: Run) -> None:
        async def scene() -> None:
            at = Scene()
            at.store.put(1, 4, 0, TAKEN_OVER)
            at.put(0)
            sealing = asyncio.ensure_future(at.wal.seal("stopped"))
            await at.answer(0)
            (await at.store.next("look", 0)).answer()
            with pytest.raises(SessionFenced):
                await sealing

        run(scene())


def test_close_stops_all_calls(run: Run) -> None:
    async def scene() -> None:
        at = Scene()
        at.put(0, 1)
        first = await at.store.next("create", 0)
        await at.wal.close()
        assert first.answered.cancelled()
        at.store.calls.clear()
        await asyncio.sleep(1000)
        assert at.store.calls == []
        assert at.confirmed == []

    run(scene())


def test_close_ends_a_seal_that_waits(run: Run) -> None:
    async def scene() -> None:
        at = Scene()
        at.put(0, 1)
        sealing = asyncio.ensure_future(at.wal.seal("stopped"))
        await at.answer(0)
        await at.wal.close()
        with pytest.raises(RuntimeError, match="session 4 was closed with 1 objects undecided"):
            await sealing
        assert at.confirmed == [0]

    run(scene())


def test_an_object_of_another_writer_with_many_rows_fences(run: Run) -> None:
    async def scene() -> None:
        at = Scene()
        many = [ROW] * 100
        foreign = WalObject(1, 4, 0, bytes(15) + b"x", many, [b"hello"] * 100)
        at.store.put(1, 4, 0, b"".join(encode(foreign)))
        at.put(0)
        (await at.store.next("create", 0)).answered.set_exception(StoreFailed("reset"))
        (await at.store.next("look", 0)).answer()
        await asyncio.sleep(0.001)
        assert "is an object of another writer" in at.fenced[0]

    run(scene())
