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

    def of(self, backup: str) -> PinnedBucket:
        return PinnedBucket(PersistentReads(self.objects, "x"), backup, f"host of {backup}", self.now_ms)

    async def kept(self) -> tuple[bool, bool]:
        """Return whether gateways keep parts, and whether they keep write-ahead logs."""
        reads, now_ms = PersistentReads(self.objects, "x"), self.now_ms() + self.late_ms
        return await is_pinned(reads, now_ms), await is_pinned(reads, now_ms, logs=True)


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


def test_a_second_backup_is_refused_until_the_pin_of_a_dead_one_ends() -> None:
    async def scene() -> None:
        at = Pins()
        dead = at.of("dead").pinned()
        await dead.__aenter__()
        content = await at.objects.get(PIN_KEY)
        with pytest.raises(PinTaken, match="host of dead"):
            async with at.of("b").pinned():
                raise AssertionError
        assert await at.objects.get(PIN_KEY) == content, "the pin of the first one stays"
        await dead.__aexit__(None, None, None)
        await at.objects.create(PIN_KEY, content)  # as if its command had been killed
        await asyncio.sleep(PIN_MS / 1000 + 1)
        assert await at.kept() == (False, False)
        async with at.of("b").pinned():
            assert await at.kept() == (True, True)

    played(scene())


def test_a_command_that_was_suspended_leaves_the_pin_of_the_next_backup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene() -> None:
        at = Pins()
        suspended = at.of("suspended").pinned()
        with monkeypatch.context() as patch:
            patch.setattr(backups, "RENEWED_EVERY_S", PIN_MS)
            await suspended.__aenter__()
            await asyncio.sleep(PIN_MS / 1000 + 1)
        async with at.of("next").pinned():
            await suspended.__aexit__(None, None, None)
            assert await at.kept() == (True, True)
        assert await at.kept() == (False, False)

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


def test_what_is_no_pin_pins_nothing() -> None:
    async def scene() -> None:
        at = Pins()
        await at.objects.create(PIN_KEY, b"{")
        assert await at.kept() == (False, False)
        async with at.of("b").pinned():
            assert await at.kept() == (True, True)

    played(scene())
