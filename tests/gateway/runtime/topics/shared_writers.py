"""Several writers of one shared metadata log, each with a local copy, on a simulated bucket."""

from __future__ import annotations

from pathlib import Path

from seqgate.gateway.cluster.metadata.shared_log import SharedLog
from seqgate.gateway.cluster.wal.sessions import SessionFacts, SharedLogContent, register
from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.image import METADATA_TOPIC, TOPIC_RESOURCE, MetadataImage
from seqgate.gateway.metadata.records import ConfigRecord
from seqgate.gateway.runtime.topics.metadata_log import METADATA_LOG_CONFIG, METADATA_TOPIC_ID, MetadataLog
from seqgate.gateway.runtime.topics.shared_journal import SharedJournal
from seqgate.log import CachedDurability, LogEnvironment, PartitionLog, Storage
from tests.gateway.handlers.support import NOW_MS, FixedClock
from tests.support.simulated_objects import CALM, Faults, SimulatedBucket, SimulatedObjects

FACTS = SessionFacts("cluster-a", NOW_MS, "host-1", "0.1.0")


class Writer:
    """One gateway, as far as the metadata goes."""

    def __init__(self, path: Path, objects: SimulatedObjects, shared: SharedLog) -> None:
        storage = Storage()
        self.objects = objects
        self.shared = shared
        path.mkdir(parents=True)
        durability = CachedDurability(storage)
        self.log = PartitionLog(
            LogEnvironment(storage, made_durable_by=durability),
            str(path),
            topic=METADATA_TOPIC,
            partition=0,
            topic_id=METADATA_TOPIC_ID,
            config=METADATA_LOG_CONFIG,
            now_ms=NOW_MS,
        )
        self.journal = SharedJournal(self.log, shared, durability, FixedClock())
        self.metadata = MetadataLog(self.journal)
        self.metadata.replay()
        self.seen: list[tuple[int, int]] = []
        """The count before and after each change of this writer that was answered."""

    async def count(self) -> int:
        """Count one further, by a change that is decided on the count before."""

        def decide(image: MetadataImage) -> Decision[tuple[int, int]]:
            before = count_in(image)
            record = ConfigRecord(TOPIC_RESOURCE, "t", "retention.ms", str(before + 1))
            return Decision((record,), (before, before + 1))

        answer = await self.metadata.commit(decide)
        self.seen.append(answer)
        return answer[1]


def count_in(image: MetadataImage) -> int:
    return int(image.topic_configs("t").get("retention.ms", "0"))


async def open_writer(
    path: Path, bucket: SimulatedBucket, number: int, *, faults: Faults = CALM, seed: int = 1
) -> Writer:
    """Register a session, and begin at the first object of the log."""
    objects = SimulatedObjects(bucket, seed=seed, name=f"writer-{number}", faults=faults)
    session = await register(objects, number, FACTS, known=SharedLogContent())
    return Writer(path / str(number), objects, SharedLog(objects, session, next_seq=0, next_offset=0))
