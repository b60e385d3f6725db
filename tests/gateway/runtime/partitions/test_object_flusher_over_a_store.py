"""Rounds over a session's log in a store whose calls fail: what was acknowledged is in the objects before the
seal, and all in order.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from seqgate.gateway.cluster.wal.ended import seal
from seqgate.gateway.cluster.wal.session_wal import SessionWal
from seqgate.gateway.cluster.wal.sessions import Session
from seqgate.gateway.cluster.wal.wal_object import WalObject, decode, object_key
from seqgate.gateway.runtime.partitions.object_flusher import WriteAheadLog
from seqgate.gateway.runtime.partitions.partition import persist_start_and_remove
from seqgate.gateway.runtime.partitions.unwritten import PutLimits
from seqgate.log import KeptWrites, retention
from tests.gateway.runtime.partitions.object_scene import Scene, Stored
from tests.log.support import NOW_MS
from tests.simulation.loop import SimulatedLoop
from tests.support.simulated_objects import CALM, ROUGH, Faults, SimulatedBucket, SimulatedObjects

SESSION = Session(4, 1, bytes(16), "cluster")
PARTITIONS = 3
STEPS = 60


def session_wal(
    bucket: SimulatedBucket, seed: int, faults: Faults
) -> Callable[[SimulatedLoop], WriteAheadLog]:
    """Return what makes the log of the session in the bucket."""

    def make(loop: SimulatedLoop) -> WriteAheadLog:
        async def begin() -> SessionWal:
            objects = SimulatedObjects(bucket, seed=seed, faults=faults)
            return SessionWal(objects, SESSION, puts_in_flight=3, chance=Random(seed))

        return loop.run_until_complete(begin())

    return make


def stored_below(bucket: SimulatedBucket, end_seq: int) -> Stored:
    """Return what the objects of the session hold, as a start would rebuild it."""
    stored = Stored()
    for seq in range(end_seq):
        key = object_key(SESSION.node_id, SESSION.session, seq)
        content = bucket.content(key)
        assert content is not None, f"{key} is missing"
        found = decode(content, key)
        assert isinstance(found, WalObject)
        stored.add(found.rows, found.data)
    return stored


class Life:
    """Random appends, rolls, removals, and outages of single logs, over a store with faults."""

    def __init__(self, directory: Path, seed: int, faults: Faults) -> None:
        self.chance = Random(seed)
        self.bucket = SimulatedBucket()
        self.at = Scene(
            directory,
            partitions=PARTITIONS,
            wal=session_wal(self.bucket, seed, faults),
            limits=PutLimits(puts_per_second=20, puts_in_flight=3, put_max_bytes=400),
            seed=seed,
            kept_writes=self.chance.choice(
                [
                    None,
                    KeptWrites(least_bytes=1, max_bytes=1 << 20),
                    KeptWrites(least_bytes=150, max_bytes=1200),
                ]
            ),
        )
        self.removals: list[tuple[int, Any]] = []

    def step(self) -> None:
        index = self.chance.randrange(PARTITIONS)
        partition = self.at.partitions[index]
        log = partition.log
        match self.chance.choice(
            ["append", "append", "append", "burst", "roll", "remove", "outage", "pause"]
        ):
            case _ if log.offline:
                return
            case "append":
                self.at.append(index, size=self.chance.choice([10, 100, 450]))
            case "burst":
                for _ in range(10):
                    self.at.append(index, count=3)
            case "roll":
                log.roll(NOW_MS)
            case "remove":
                ticket = retention.prepare_delete_records(log, log.high_watermark, NOW_MS)
                if ticket is not None:
                    removal = self.at.loop.create_task(persist_start_and_remove(partition, ticket, NOW_MS))
                    self.removals.append((index, removal))
            case "outage":
                log.go_offline("a test says so")
                self.at.loop.run_until_complete(self._reopen(index))
            case "pause":
                self.at.run(self.chance.choice([0.01, 0.1, 5]))

    async def _reopen(self, index: int) -> None:
        partition = self.at.partitions[index]
        partition.log.reopen(NOW_MS)
        partition.start_flush()
        partition.flush_finished()

    def check_acknowledged(self, stored: Stored) -> None:
        for index, offset, is_persisted in self.at.answers:
            log = self.at.partitions[index].log
            if is_persisted:
                assert offset < stored.end_offsets.get((log.topic_id, index), 0)
        for partition in self.at.partitions:
            log = partition.log
            assert log.high_watermark <= stored.end_offsets.get((log.topic_id, log.partition), 0)
            if log.log_start_offset:
                assert "log-start-offset-checkpoint" in stored.files[log.topic_id, log.partition]


def run(seed: int, faults: Faults, *, is_sealed: bool) -> None:
    with TemporaryDirectory() as directory:
        life = Life(Path(directory), seed, faults)
        at = life.at
        for _ in range(STEPS):
            life.step()
        if not is_sealed:
            at.loop.run_until_complete(at.flusher.idle())
            at.run(1.0)
            end_seq = len(life.bucket.keys(f"wal/{SESSION.node_id}/"))
            stored = stored_below(life.bucket, end_seq)
            for partition in at.partitions:
                stored.check(partition.log)
                assert partition.log.recovery_point == partition.log.log_end_offset
        else:
            taker = SimulatedObjects(life.bucket, seed=seed, name="taker")
            sealed = at.loop.run_until_complete(seal(taker, 1, 4, 2, "node 1 is silent"))
            for _ in range(STEPS):
                life.step()
            at.append(0) if not at.log.offline else None
            at.loop.run_until_complete(at.flusher.idle())
            at.run(1.0)
            stored = stored_below(life.bucket, sealed.end_seq)
        life.check_acknowledged(stored)
        assert not at.flusher.unwritten.sent_bytes
        assert not at.loop.unhandled


@settings(max_examples=8)
@given(seed=st.integers(0, 2**31))
def test_every_byte_is_in_the_objects_once_and_in_order(seed: int) -> None:
    run(seed, ROUGH, is_sealed=False)


@settings(max_examples=8)
@given(seed=st.integers(0, 2**31), faults=st.sampled_from([CALM, ROUGH]))
def test_what_was_acknowledged_is_before_the_seal(seed: int, faults: Faults) -> None:
    run(seed, faults, is_sealed=True)
