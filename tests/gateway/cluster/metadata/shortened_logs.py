"""A bucket with a metadata log, snapshots of it, and a boundary, for tests."""

from __future__ import annotations

from seqgate.gateway.cluster.metadata.shared_log import SharedLog
from seqgate.gateway.cluster.metadata.snapshot import encode_snapshot, image_batches
from seqgate.gateway.cluster.wal.sessions import (
    RegisteredSession,
    SessionFacts,
    SharedLogContent,
    Snapshot,
    encode_boundary,
    register,
)
from seqgate.gateway.cluster.wal.wal_object import SHORTENED_KEY, registration_key, snapshot_key
from seqgate.log.format.records import NewRecord, build_batch
from tests.support.simulated_objects import SimulatedBucket, SimulatedObjects

FACTS = SessionFacts("cluster-a", 1_000, "host-1", "0.1.0")


def batch(text: bytes) -> bytes:
    return build_batch([NewRecord(text)])


async def written(bucket: SimulatedBucket, changes: int) -> SharedLog:
    """Register a session as object 0, and write so many changes behind it, of one record each."""
    objects = SimulatedObjects(bucket)
    known = SharedLogContent()
    shared = SharedLog(objects, await register(objects, 1, FACTS, known=known), next_seq=1, next_offset=0)
    shared.sessions = list(known.sessions)
    for number in range(changes):
        made = await shared.create(batch(b"%d" % number))
        assert made is not None
        shared.take(made)
    return shared


def snapshot(bucket: SimulatedBucket, shared: SharedLog, seq: int) -> Snapshot:
    """Store the snapshot before the object `seq`: an image of one record."""
    session: RegisteredSession = shared.sessions[0]
    made = Snapshot(seq, seq - 1, "cluster-a", 1, (session,), image_batches([b"image %d" % seq], seq - 1, 0))
    bucket.create(snapshot_key(seq), encode_snapshot(made), 0)
    return made


def shorten(bucket: SimulatedBucket, boundary: int) -> None:
    """Move the boundary, and delete what is below it, but for the first registration."""
    bucket.replace(SHORTENED_KEY, encode_boundary(boundary), None, 0)
    for seq in range(1, boundary):
        bucket.delete(registration_key(seq), 0)
