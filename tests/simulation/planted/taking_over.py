"""Mistakes about the write-ahead log of a session in a bucket, and about its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gateway.cluster.objects.objects import ObjectStore
from gateway.cluster.uploads.recording_wal import RecordingWal
from gateway.cluster.wal import confirmations, sealing
from gateway.cluster.wal.confirmations import Confirmations, Outcome, Step
from gateway.cluster.wal.persistence import PersistentReads
from gateway.cluster.wal.sealing import SealedWal
from gateway.cluster.wal.sessions import RegisteredSession, Session, sessions
from gateway.cluster.wal.wal_object import Row, Seal
from gateway.homes import bucket_home
from gateway.homes.bucket_home import BucketHome
from gateway.runtime.partitions.round_reader import RoundReader
from gateway.runtime.topics.metadata_log import METADATA_TOPIC_ID
from tests.simulation.planted.fault import Change, bucket_fault


def _rules(*, own: Outcome) -> list[Change]:
    """Count an outcome as success, and rest."""
    return [
        (confirmations, "_OWN", confirmations._OWN | {own}),
        (confirmations, "_NEXT", {**confirmations._NEXT, own: Step.REST}),
    ]


@bucket_fault
def acknowledged_before_contiguity() -> list[Change]:
    """records are acknowledged when their object is in the bucket, although one before it is not known to be there"""

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
    return _rules(own=Outcome.TAKEN)


@bucket_fault
def failed_put_taken_for_success() -> list[Change]:
    """a put without an answer counts as carried out, without a look at the object"""
    return _rules(own=Outcome.UNKNOWN)


@bucket_fault
def seal_ignored() -> list[Change]:
    """a gateway that finds the seal of its session continues behind it"""
    return [(confirmations, "_FENCING", frozenset()), *_rules(own=Outcome.SEALED)]


@bucket_fault
def taken_over_without_a_seal() -> list[Change]:
    """a gateway that takes over reads to the first missing object, and creates no seal there"""

    async def create_at(self: Any, seq: int) -> Seal:
        return Seal(self._node_id, self._session, seq, self._nonce, self._by, self._reason)

    return [(sealing._Taker, "_create_at", create_at)]


@bucket_fault
def log_read_before_its_seal() -> list[Change]:
    """a gateway that takes over reads the records first, and seals the log then"""
    seal_earlier, rebuild = bucket_home.seal_earlier, bucket_home.rebuild
    waiting: dict[ObjectStore, Callable[[], Any]] = {}

    async def ends(
        objects: ObjectStore, own: Session, reason: str
    ) -> list[tuple[RegisteredSession, SealedWal]]:
        waiting[objects] = lambda: seal_earlier(objects, own, reason)
        before = (await sessions(objects))[: own.session]
        return [(each, await _end_of(objects, each, own, reason)) for each in before]

    async def rebuild_first(objects: ObjectStore, *arguments: Any) -> Any:
        rebuilt = await rebuild(objects, *arguments)
        await waiting.pop(objects)()
        return rebuilt

    return [(bucket_home, "seal_earlier", ends), (bucket_home, "rebuild", rebuild_first)]


async def _end_of(objects: ObjectStore, earlier: RegisteredSession, own: Session, reason: str) -> SealedWal:
    """Return where the log ends at this moment; do not seal it."""

    class Looker(sealing._Taker):
        async def _create_at(self, seq: int) -> Seal:
            return Seal(self._node_id, self._session, seq, self._nonce, self._by, self._reason)

    reads = PersistentReads(objects, "the gateway waits")
    first_seq = await sealing.read_boundary(reads, earlier.node_id, earlier.session)
    looker = Looker(reads, earlier.node_id, earlier.session, own.node_id, reason, earlier.nonce)
    found = await looker.sealed_from(first_seq)
    return SealedWal(first_seq, found.seq, found)


@bucket_fault
def disk_of_a_crash_used_again() -> list[Change]:
    """a start uses the files on the disk after a crash, although the bucket may lack some of them and the disk may lack others"""

    async def is_newest(self: BucketHome, _: Sequence[RegisteredSession]) -> bool:
        local = bucket_home.read_local_session(self._machine.storage, str(self._path))
        return local is not None

    return [(BucketHome, "_is_newest", is_newest)]


@bucket_fault
def older_disk_used_again() -> list[Change]:
    """a start uses the files of a clean stop, although later sessions have written on other machines"""
    is_newest = BucketHome._is_newest

    async def is_newest_of_its_own(self: BucketHome, earlier: Sequence[RegisteredSession]) -> bool:
        local = bucket_home.read_local_session(self._machine.storage, str(self._path))
        return await is_newest(self, earlier if local is None else earlier[: local.session + 1])

    return [(BucketHome, "_is_newest", is_newest_of_its_own)]


@bucket_fault
def metadata_left_out() -> list[Change]:
    """the objects of a session lack the records of the metadata log, which is flushed beside the rounds of topics"""
    put = RecordingWal.put

    def without(
        self: RecordingWal, rows: Sequence[Row], data: Sequence[bytes], confirmed: Callable[[], None]
    ) -> None:
        kept = [each for each in zip(rows, data, strict=True) if each[0].topic_id != METADATA_TOPIC_ID]
        put(self, [row for row, _ in kept], [content for _, content in kept], confirmed)

    return [(RecordingWal, "put", without)]


@bucket_fault
def side_files_left_out() -> list[Change]:
    """the objects of a session have records only, and no log start offsets, producer names or leader epochs"""

    def read_files(self: RoundReader, ticket: Any, _: Any) -> int:
        self._durability.write_side_files(ticket, [])
        return 0

    return [(RoundReader, "_read_files", read_files)]
