"""What gateways do for a backup of their bucket: holds, which end by themselves, and the pin."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from seqgate.gateway.cluster.objects.objects import Missing
from seqgate.gateway.cluster.wal import backups
from seqgate.gateway.cluster.wal.backups import (
    LONGEST_HOLD_S,
    PIN_KEY,
    PIN_MS,
    RENEWED_EVERY_S,
    UNRENEWED_S,
    HoldRefused,
    PinnedBucket,
    PinTaken,
    SessionHolds,
    is_pinned,
)
from seqgate.gateway.cluster.wal.persistence import PersistentReads
from seqgate.gateway.cluster.wal.session_wal import SessionWal
from seqgate.gateway.cluster.wal.sessions import Session
from seqgate.gateway.cluster.wal.wal_object import Seal, encode_seal, object_key, registration_key
from tests.gateway.cluster.wal.virtual import in_virtual_time
from tests.support.simulated_objects import SimulatedBucket, SimulatedObjects

SESSION = Session(4, 1, bytes(16), "cluster")


class Scene:
    """A session over a simulated store; `confirmed` counts its confirmed objects."""

    def __init__(self, lease_s: float = 60.0) -> None:
        self.objects = SimulatedObjects(SimulatedBucket())
        self.wal = SessionWal(self.objects, SESSION, puts_in_flight=4, chance=Random(1))
        self.holds = SessionHolds(self.objects, self.wal, lease_s, lambda: 3)
        self.confirmed = 0

    def put(self) -> None:
        self.wal.put((), (), self._confirm)

    def _confirm(self) -> None:
        self.confirmed += 1


def played(scene: Coroutine[Any, Any, None]) -> None:
    in_virtual_time(scene)


def test_a_hold_says_where_the_session_stands_and_ends_with_its_release() -> None:
    async def scene() -> None:
        at = Scene()
        at.put()
        await at.wal.barrier()
        assert at.holds.begin("b") == (1, 4, "00" * 16, 2)
        at.put()
        await asyncio.sleep(LONGEST_HOLD_S / 2)
        assert (at.confirmed, at.wal.confirmed_end) == (1, 2)
        assert at.holds.end("b")
        await at.wal.barrier()
        assert at.confirmed == 2
        assert not at.holds.end("b"), "it is held no more"
        await at.wal.close()

    played(scene())


@pytest.mark.parametrize(("lease_s", "longest_s"), [(60.0, LONGEST_HOLD_S), (1.5, 0.5)])
def test_a_hold_that_nobody_releases_ends_by_itself(lease_s: float, longest_s: float) -> None:
    async def scene() -> None:
        at = Scene(lease_s)
        at.holds.begin("b")
        at.put()
        await asyncio.sleep(longest_s * 0.9)
        assert at.confirmed == 0
        await asyncio.sleep(longest_s * 0.2)
        assert at.confirmed == 1
        assert not at.holds.end("b"), "the backup must not use what it was told"
        await at.wal.close()

    played(scene())


def test_one_backup_holds_a_session_at_a_time() -> None:
    async def scene() -> None:
        at = Scene()
        at.holds.begin("first")
        with pytest.raises(HoldRefused, match="another backup"):
            at.holds.begin("second")
        assert not at.holds.end("second"), "the release of another backup ends nothing"
        assert at.holds.end("first")
        at.holds.begin("second")
        await at.wal.close()

    played(scene())


def test_a_session_that_is_taken_over_while_it_is_held_spoils_the_cut() -> None:
    async def scene() -> None:
        at = Scene()
        at.holds.begin("b")
        await at.objects.create(object_key(1, 4, 0), encode_seal(Seal(1, 4, 0, bytes(16), 2, "silent")))
        at.put()
        await asyncio.sleep(LONGEST_HOLD_S / 2)
        assert not at.holds.end("b")
        with pytest.raises(HoldRefused, match="has ended"):
            at.holds.begin("b")
        await at.wal.close()

    played(scene())


def test_the_end_of_the_metadata_is_that_of_the_bucket() -> None:
    async def scene() -> None:
        at = Scene()
        assert await at.holds.metadata_end() == 3
        for seq in (3, 4, 6):
            await at.objects.create(registration_key(seq), b"")
        assert await at.holds.metadata_end() == 5
        await at.wal.close()

    played(scene())


# The pin.


class Pins:
    """A bucket, and a clock that goes with the time of the loop. `late_ms` sets the clock of the gateways."""

    def __init__(self) -> None:
        self.objects = SimulatedObjects(SimulatedBucket())
        self.late_ms = 0

    def now_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000) + 1_000_000

    def of(self, backup: str, late_ms: int = 0) -> PinnedBucket:
        reads = PersistentReads(self.objects, "x")
        return PinnedBucket(reads, backup, f"host of {backup}", lambda: self.now_ms() + late_ms)

    async def kept(self) -> tuple[bool, bool]:
        """Return whether gateways keep parts, and whether they keep write-ahead logs."""
        reads, now_ms = PersistentReads(self.objects, "x"), self.now_ms() + self.late_ms
        return await is_pinned(reads, now_ms), await is_pinned(reads, now_ms, logs=True)

    async def leave_dead(self) -> None:
        """Leave the pin of a backup whose command was killed."""
        async with self.of("dead").pinned():
            content = await self.objects.get(PIN_KEY)
        await self.objects.create(PIN_KEY, content)


async def suspend(patch: pytest.MonkeyPatch, pin: PinnedBucket, seconds: float) -> None:
    """Let the command of a pin that was just made renew it for the first time after so long."""
    patch.setattr(backups, "RENEWED_EVERY_S", seconds)
    await asyncio.sleep(0)  # the task that renews it begins its wait
    patch.undo()
    pin.check()


def test_the_pin_stays_while_the_backup_renews_it() -> None:
    async def scene() -> None:
        at = Pins()
        assert await at.kept() == (False, False)
        pin = at.of("b")
        async with pin.pinned():
            await asyncio.sleep(3 * PIN_MS / 1000)
            assert await at.kept() == (True, True)
            await pin.release_logs()
            assert await at.kept() == (True, False)
            await asyncio.sleep(2 * RENEWED_EVERY_S)
            assert await at.kept() == (True, False), "a renewal keeps no more than the backup needs"
            await pin.keep_logs()
            assert await at.kept() == (True, True)
        assert await at.kept() == (False, False)
        with pytest.raises(Missing):
            await at.objects.get(PIN_KEY)

    played(scene())


@pytest.mark.parametrize("late_ms", [0, -PIN_MS, 2 * PIN_MS], ids=["same", "slow", "fast"])
def test_a_second_backup_is_refused_while_the_first_renews_its_pin(late_ms: int) -> None:
    async def scene() -> None:
        at = Pins()
        async with at.of("first").pinned():
            await asyncio.sleep(RENEWED_EVERY_S / 2)
            begun_s = asyncio.get_running_loop().time()
            with pytest.raises(PinTaken, match="under way on host of first"):
                async with at.of("b", late_ms).pinned():
                    raise AssertionError
            assert asyncio.get_running_loop().time() - begun_s <= RENEWED_EVERY_S + 1
            assert await at.kept() == (True, True)
        async with at.of("b", late_ms).pinned():
            pass

    played(scene())


def test_the_pin_of_a_dead_backup_is_taken_over_and_gateways_delete_nothing_meanwhile() -> None:
    async def scene() -> None:
        at = Pins()
        await at.leave_dead()
        begun_s = asyncio.get_running_loop().time()

        async def back_up(name: str) -> str:
            async with at.of(name).pinned():
                assert UNRENEWED_S <= asyncio.get_running_loop().time() - begun_s < 60
                await asyncio.sleep(2 * UNRENEWED_S)
            return name

        both = asyncio.gather(back_up("b"), back_up("c"), return_exceptions=True)
        while not both.done():
            kept = await at.kept()
            assert kept == (True, True) or both.done()
            await asyncio.sleep(0.1)
        won, lost = sorted(await both, key=lambda result: isinstance(result, PinTaken))
        assert won in {"b", "c"}
        assert f"under way on host of {won}" in str(lost)
        assert await at.kept() == (False, False)

    played(scene())


@pytest.mark.parametrize("is_over", [False, True])
def test_a_command_that_was_suspended_notices_that_it_lost_its_pin(
    monkeypatch: pytest.MonkeyPatch, is_over: bool
) -> None:
    async def scene() -> None:
        at = Pins()
        suspended = at.of("suspended")
        async with suspended.pinned():
            await suspend(monkeypatch, suspended, 2 * UNRENEWED_S)
            following = at.of("next").pinned()
            await following.__aenter__()
            if is_over:
                await following.__aexit__(None, None, None)
            await asyncio.sleep(UNRENEWED_S)
            whose = "another backup" if is_over else "a backup on host of next"
            with pytest.raises(PinTaken, match=f"{whose} has taken its place"):
                suspended.check()
            with pytest.raises(PinTaken):
                await suspended.release_logs()
        assert await at.kept() == (not is_over, not is_over), "the end of the first leaves the next one's pin"
        if not is_over:
            await following.__aexit__(None, None, None)

    played(scene())


def test_clocks_may_differ_by_minutes_and_a_wrong_one_pins_nothing() -> None:
    async def scene() -> None:
        at = Pins()
        async with at.of("b").pinned():
            for at.late_ms in (-PIN_MS // 2, PIN_MS // 2):
                assert await at.kept() == (True, True)
            at.late_ms = -10 * PIN_MS
            assert await at.kept() == (False, False)

    played(scene())


@pytest.mark.parametrize("content", [b"{", b'{"x":' + b"[" * 100_000], ids=("cut", "deep"))
def test_what_is_no_pin_pins_nothing(content: bytes) -> None:
    async def scene() -> None:
        at = Pins()
        await at.objects.create(PIN_KEY, content)
        assert await at.kept() == (False, False)
        async with at.of("b").pinned():
            assert await at.kept() == (True, True)

    played(scene())
