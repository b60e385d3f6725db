"""Mistakes about the write-ahead log of a session in a bucket, and about its end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from seqgate.gateway.backends import bucket_start
from seqgate.gateway.backends.bucket_start import BucketStart
from seqgate.gateway.cluster.metadata import shared_log
from seqgate.gateway.cluster.metadata.change import decode_change
from seqgate.gateway.cluster.objects.objects import AlreadyThere, ObjectStore, StoreFailed
from seqgate.gateway.cluster.wal import ended, session_wal
from seqgate.gateway.cluster.wal.ended import SealedWal
from seqgate.gateway.cluster.wal.persistence import PersistentReads
from seqgate.gateway.cluster.wal.session_wal import Confirmations, ObjectOutcome, ObjectStep
from seqgate.gateway.cluster.wal.sessions import RegisteredSession, Session, SharedLogContent
from seqgate.gateway.cluster.wal.wal_object import Seal
from seqgate.gateway.runtime.partitions.object_flusher import RoundReader
from seqgate.log.stopped import stored_batches
from tests.simulation.planted.fault import Change, bucket_fault


def _rules(*, own: ObjectOutcome) -> list[Change]:
    """Count an outcome as success, and rest."""
    return [
        (session_wal, "_OWN", session_wal._OWN | {own}),
        (session_wal, "_NEXT", {**session_wal._NEXT, own: ObjectStep.REST}),
    ]


@bucket_fault
def acknowledged_before_contiguity() -> list[Change]:
    """records are acknowledged when their object is in the bucket, although one before it is not known to be
    there
    """

    def confirm(self: Confirmations) -> range:
        begin = self.confirmed_end
        if self._own:
            self.confirmed_end = max(self._own) + 1
            self._own.clear()
        return range(begin, self.confirmed_end)

    return [(Confirmations, "confirm", confirm)]


@bucket_fault
def existing_object_taken_for_our_own() -> list[Change]:
    """a put that finds an object counts as carried out, without a look whose object that is"""
    return _rules(own=ObjectOutcome.TAKEN)


@bucket_fault
def failed_put_taken_for_success() -> list[Change]:
    """a put without an answer counts as carried out, without a look at the object"""
    return _rules(own=ObjectOutcome.UNKNOWN)


@bucket_fault
def seal_ignored() -> list[Change]:
    """a gateway that finds the seal of its session continues behind it"""
    return [(session_wal, "_FENCING", frozenset()), *_rules(own=ObjectOutcome.SEALED)]


@bucket_fault
def taken_over_without_a_seal() -> list[Change]:
    """a gateway that takes over reads to the first missing object, and creates no seal there"""

    async def create_at(self: Any, seq: int) -> Seal:
        return Seal(self._node_id, self._session, seq, self._nonce, self._by, self._reason)

    return [(ended._Taker, "_create_at", create_at)]


@bucket_fault
def log_read_before_its_seal() -> list[Change]:
    """a gateway that takes over reads the records first, and seals the log then"""
    end_earlier, rebuild = bucket_start.end_earlier, bucket_start.rebuild
    waiting: dict[ObjectStore, Callable[[], Any]] = {}

    async def ends(
        objects: ObjectStore, own: Session, known: Sequence[RegisteredSession], reason: str, **options: Any
    ) -> list[tuple[RegisteredSession, SealedWal]]:
        waiting[objects] = lambda: end_earlier(objects, own, known, reason, **options)
        return [(each, await _end_of(objects, each, own, reason)) for each in known]

    async def rebuild_first(objects: ObjectStore, *arguments: Any) -> Any:
        rebuilt = await rebuild(objects, *arguments)
        await waiting.pop(objects)()
        return rebuilt

    return [(bucket_start, "end_earlier", ends), (bucket_start, "rebuild", rebuild_first)]


async def _end_of(objects: ObjectStore, earlier: RegisteredSession, own: Session, reason: str) -> SealedWal:
    """Return where the log ends at this moment; do not seal it."""

    class Looker(ended._Taker):
        async def _create_at(self, seq: int) -> Seal:
            return Seal(self._node_id, self._session, seq, self._nonce, self._by, self._reason)

    reads = PersistentReads(objects, "the gateway waits")
    first_seq = await ended.read_boundary(reads, earlier.node_id, earlier.session)
    looker = Looker(reads, earlier.node_id, earlier.session, own.node_id, reason, earlier.nonce)
    found = await looker.sealed_from(first_seq)
    return SealedWal(first_seq, found.seq, found)


@bucket_fault
def disk_of_a_crash_used_again() -> list[Change]:
    """a start uses the files on the disk after a crash, although the bucket may lack some of them and the
    disk may lack others
    """

    async def copied(self: BucketStart, _: Session) -> tuple[int, int] | None:
        return None if self._local is None else _end_of_copy(self)

    return [(BucketStart, "_copied", copied)]


def _end_of_copy(start: BucketStart) -> tuple[int, int]:
    """Return the first object of `meta/`, and its offset, that the local metadata log lacks."""
    directory = start._path / "__cluster_metadata-0"
    if not start._machine.storage.exists(str(directory)):
        return 0, 0
    offset = max(
        (header.last_offset + 1 for header, _ in stored_batches(start._machine.storage, directory)), default=0
    )
    ends = {decode_change(content, seq).end_offset: seq + 1 for seq, content in start._known.changes}
    return (ends[offset], offset) if offset else (0, 0)


@bucket_fault
def older_disk_used_again() -> list[Change]:
    """a start uses the files of a clean stop, although later sessions have written on other machines"""
    copied = BucketStart._copied

    async def copied_of_its_own(self: BucketStart, session: Session) -> tuple[int, int] | None:
        known, local = self._known, self._local
        until = [each for each in known.sessions if local is None or each.session <= local.session]
        self._known = replace(known, sessions=until)
        try:
            return await copied(self, session)
        finally:
            self._known = known

    return [(BucketStart, "_copied", copied_of_its_own)]


@bucket_fault
def failed_change_taken_for_success() -> list[Change]:
    """a change of the metadata without an answer counts as carried out, without a look at the object"""

    async def create(reads: PersistentReads, key: str, content: bytes, **_: bool) -> bytes:
        with contextlib.suppress(StoreFailed, AlreadyThere):
            await reads.objects.create(key, content)
        return content

    return [(shared_log, "create_or_read", create)]


@bucket_fault
def changes_of_others_left_out() -> list[Change]:
    """a start makes the metadata of the changes before the last session, and misses the later ones"""

    def batches(known: SharedLogContent) -> Iterator[bytes]:
        sessions = [decode_change(content, seq).session for seq, content in known.changes]
        earlier = sum(session < max(sessions) for session in sessions)
        return metadata_batches(replace(known, changes=known.changes[:earlier]))

    metadata_batches = bucket_start.metadata_batches
    return [(bucket_start, "metadata_batches", batches)]


@bucket_fault
def side_files_left_out() -> list[Change]:
    """the objects of a session have records only, and no log start offsets, producer names or leader epochs"""

    def read_files(self: RoundReader, ticket: Any, _: Any) -> int:
        self._durability.write_side_files(ticket, [])
        return 0

    return [(RoundReader, "_read_files", read_files)]
