"""Several writers of one metadata log that is shortened under them: none takes what is no change, and no
change is lost.

A writer stands still between two calls, sometimes for longer than objects are kept. The store is slow and
fails at times.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, nullcontext
from random import Random
from typing import Final

import pytest

from seqgate.gateway.backends.metadata_snapshots import MetadataSnapshots
from seqgate.gateway.cluster.metadata.shared_log import SharedLog, end_offset_of, read_metadata
from seqgate.gateway.cluster.wal.sessions import (
    LogShortened,
    Session,
    SessionFacts,
    SharedLogContent,
    register,
)
from seqgate.gateway.metadata.image import TOPIC_RESOURCE, MetadataImage
from seqgate.gateway.metadata.records import ConfigRecord
from seqgate.gateway.runtime.topics.metadata_log import change_batch
from tests.gateway.cluster.wal.virtual import in_virtual_time
from tests.simulation.checkers.metadata_changes import changes_of
from tests.simulation.checkers.shortened_metadata import (
    Taken,
    first_objects,
    strange_takes,
    takes,
    wrong_snapshots,
)
from tests.simulation.planted import FAULTS, SOUGHT
from tests.support.simulated_objects import CALM, Faults, SimulatedBucket, SimulatedObjects

FACTS: Final = SessionFacts("cluster-a", 1_000, "host-1", "0.1.0")
KEPT_S: Final = 2.0
WRITERS: Final = 3
CHANGES: Final = 25
"""Changes of one writer."""
ROUGH: Final = Faults(slow=0.05, slow_latency_s=8.0, fails_before=0.05, fails_after=0.05, silent=0.03)
SEEDS: Final = 25


class Writer:
    def __init__(self, bucket: SimulatedBucket, number: int, seed: int) -> None:
        self._chance = Random(f"writer {number} {seed}")
        self._number = number
        faults = CALM if seed % 2 else ROUGH
        self.objects = SimulatedObjects(bucket, seed=seed + number, faults=faults, timeout_s=3.0)
        self.made: list[int] = []
        self.restarts = 0
        self._session: Session
        self.shared: SharedLog

    async def begin(self) -> None:
        """Start as a gateway does."""
        self._session = await register(self.objects, self._number, FACTS, known=SharedLogContent())
        await self._open()

    async def _open(self) -> None:
        known = await read_metadata(self.objects)
        self.shared = SharedLog(
            self.objects, self._session, next_seq=known.end_seq, next_offset=end_offset_of(known)
        )
        self.shared.kept_s = KEPT_S
        self.shared.sessions = list(known.sessions)

    async def run(self) -> None:
        for number in range(CHANGES):
            try:
                await self._catch_up()
                await self._stand_still()
                await self._change(number)
            except LogShortened:
                self.restarts += 1
                await self._open()

    async def _catch_up(self) -> None:
        while entries := await self.shared.read(self._chance.choice((1, 8))):
            for entry in entries:
                self.shared.take(entry)

    async def _stand_still(self) -> None:
        if self._chance.random() < 0.3:
            await asyncio.sleep(self._chance.choice((0.05, 1.0, 12.0)))

    async def _change(self, number: int) -> None:
        record = ConfigRecord(TOPIC_RESOURCE, f"t{self._number}", "retention.ms", str(number))
        made = await self.shared.create(change_batch([record], 0))
        if made is not None:
            self.shared.take(made)
            self.made.append(made.seq)


async def _live(bucket: SimulatedBucket, seed: int) -> list[Writer]:
    writers = [Writer(bucket, number, seed) for number in range(1, WRITERS + 1)]
    for writer in writers:
        await writer.begin()
    await writers[0]._catch_up()
    await writers[0]._change(0)  # a cluster that writes snapshots has registered a broker
    image = MetadataImage()
    image.brokers.cluster_version = 4
    keepers = []
    for number in (7, 8):  # two at once, as when two gateways think that it is their turn
        keeper = Writer(bucket, number, seed)
        await keeper.begin()
        keepers.append(keeper)

    async def keep(keeper: Writer) -> None:
        snapshots = MetadataSnapshots(
            keeper.objects, keeper.shared, image, lambda: True, lambda: 4, lambda: 0
        )
        while True:
            await asyncio.sleep(0.5)
            try:
                await keeper._catch_up()
                await snapshots.work()
            except LogShortened:
                await keeper._open()
                snapshots._shared = keeper.shared

    keeping = [asyncio.create_task(keep(keeper)) for keeper in keepers]
    await asyncio.gather(*(writer.run() for writer in writers))
    for task in keeping:
        if task.done():
            await task
        task.cancel()
    await asyncio.gather(*keeping, return_exceptions=True)
    return writers


def run(seed: int, planted: AbstractContextManager[object] | None = None) -> tuple[list[str], int]:
    """Return the breaches of a seed, and how many objects of the log were deleted."""
    bucket = SimulatedBucket()
    taken: list[Taken]
    with planted or nullcontext(), takes() as taken:
        writers = in_virtual_time(_live(bucket, seed), seed)
    firsts = first_objects(bucket)
    changes, breaches = changes_of(bucket)
    breaches += strange_takes(taken, firsts) + wrong_snapshots(bucket, firsts)
    made = sorted(seq for writer in writers for seq in writer.made)
    if len(set(made)) != len(made):
        breaches.append("two writers made the same change")
    if not set(made) <= {change.seq for change in changes}:
        breaches.append("a change that was made is none of the log")
    return breaches, len(firsts) - sum(key.removeprefix("meta/").isdigit() for key in bucket.keys("meta/"))


def test_no_change_is_lost_or_made_up() -> None:
    deleted = 0
    for seed in range(SEEDS):
        breaches, count = run(seed)
        assert breaches == [], f"seed {seed}"
        deleted += count
    assert deleted > SEEDS * 10


@pytest.mark.parametrize("name", ["boundary_not_read_after_the_create", "deleted_without_the_boundary"])
def test_a_planted_mistake_is_found(name: str) -> None:
    fault = {**FAULTS, **SOUGHT}[name]
    assert any(run(seed, fault.plant())[0] for seed in range(SEEDS))
