"""Checks the metadata log of a bucket that was shortened: its snapshots, and what gateways took for changes.

A place of the log has one object for ever: the first one that was created there. A gateway that stood still
may create another one after the first was deleted, and nobody may take that one for a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from unittest import mock

from seqgate.gateway.cluster.metadata.change import StoredChange
from seqgate.gateway.cluster.metadata.shared_log import Entry, SharedLog, decode_entry
from seqgate.gateway.cluster.metadata.snapshot import CorruptMetadataSnapshot, decode_snapshot
from seqgate.gateway.cluster.wal.sessions import CorruptRegistration
from seqgate.gateway.cluster.wal.wal_object import SNAPSHOT_PREFIX
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.records import decode_record
from seqgate.log.format.records import iterate_records
from tests.support.simulated_objects import SimulatedBucket

_META: Final = "meta/"


class Taken(NamedTuple):
    """An object that a gateway took for the next one of the metadata log."""

    session: int
    """The session of the gateway."""
    entry: Entry


@contextmanager
def takes() -> Iterator[list[Taken]]:
    """Record what gateways take for objects of the metadata log after their start."""
    taken: list[Taken] = []
    take = SharedLog.take

    def recorded(self: SharedLog, entry: Entry) -> None:
        take(self, entry)
        taken.append(Taken(self._session.session, entry))

    with mock.patch.object(SharedLog, "take", recorded):
        yield taken


def first_objects(bucket: SimulatedBucket) -> dict[int, bytes]:
    """Return the first object that was created in each place of `meta/`, whether or not it was deleted, in
    order.
    """
    stored = [(key, one) for key, one in (*bucket.objects.items(), *bucket.deleted) if _is_place(key)]
    found: dict[int, bytes] = {}
    for key, one in sorted(stored, key=lambda pair: (pair[0], pair[1].created_s)):
        found.setdefault(int(key.removeprefix(_META)), one.content)
    return found


def _is_place(key: str) -> bool:
    return key.startswith(_META) and key.removeprefix(_META).isdigit()


def strange_takes(taken: Iterable[Taken], firsts: Mapping[int, bytes]) -> list[str]:
    """Return a breach for each object that a gateway took, and that was not the first one in its place."""
    breaches = []
    for one in taken:
        entry = one.entry
        seq = entry.seq if isinstance(entry, StoredChange) else entry.session
        if seq not in firsts or decode_entry(firsts[seq], seq) != entry:
            breaches.append(
                f"metadata: session {one.session} took an object for change {seq} that is not the first one "
                "of that place"
            )
    return breaches


def wrong_snapshots(bucket: SimulatedBucket, firsts: Mapping[int, bytes]) -> list[str]:
    """Return a breach for each snapshot, deleted or not, that is not the image of the objects before it."""
    breaches = []
    image, done = MetadataImage(), 0
    stored = {
        int(key.removeprefix(SNAPSHOT_PREFIX)): one.content
        for key, one in (*bucket.deleted, *bucket.objects.items())
        if key.startswith(SNAPSHOT_PREFIX)
    }
    for seq, content in sorted(stored.items()):
        try:
            snapshot = decode_snapshot(content, seq)
            for place in range(done, seq):
                entry = decode_entry(firsts[place], place)
                if isinstance(entry, StoredChange):
                    _replay(image, entry.batch)
        except (CorruptMetadataSnapshot, CorruptRegistration, KeyError) as error:
            breaches.append(f"metadata: snapshot {seq} can't be compared: {error!r}")
            continue
        done = seq
        again = MetadataImage()
        for batch in snapshot.batches:
            _replay(again, batch)
        if _state(again) != _state(image):
            breaches.append(f"metadata: snapshot {seq} is not the image of the changes before it")
    return breaches


def _replay(image: MetadataImage, batch: bytes) -> None:
    for record in iterate_records(batch):
        image.replay(decode_record(record.value or b""))


def _state(image: MetadataImage) -> Any:
    """Return all of an image but for ended sessions, some of which a snapshot leaves out."""
    return (
        image.topics_by_name,
        image.partition_count,
        image.producer_id_blocks,
        image.next_producer_id,
        image.client_quotas,
        {kind: values for kind, values in image._configs.items() if values},
        image.acls.by_id,
        image.users.by_name,
        image.tokens.by_id,
        image.brokers.by_id,
        image.brokers.cluster_version,
    )
