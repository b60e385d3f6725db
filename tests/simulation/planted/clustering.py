"""Mistakes of gateways that are one cluster: leases, takeovers, moves, the shared metadata, and transactions
across gateways.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from seqgate.gateway.backends import bucket_backend
from seqgate.gateway.backends.bucket_backend import uploaded_partitions
from seqgate.gateway.cluster import silence
from seqgate.gateway.cluster.silence import Lease
from seqgate.gateway.cluster.uploads.partition_uploads import UploadedPartitions
from seqgate.gateway.cluster.uploads.uploads import Uploads
from seqgate.gateway.cluster.wal import ended as sealing
from seqgate.gateway.cluster.wal import session_wal
from seqgate.gateway.cluster.wal.ended import StoredSessions
from seqgate.gateway.cluster.wal.session_wal import ObjectOutcome, ObjectStep
from seqgate.gateway.cluster.wal.wal_object import Seal
from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.metadata import leadership
from seqgate.gateway.metadata.records import MetadataRecord
from seqgate.gateway.runtime.coordinators.transaction_markers import RemoteMarkers
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.runtime.topics.metadata_news import MetadataNews
from seqgate.gateway.runtime.topics.shared_journal import SharedJournal
from tests.simulation.planted.fault import Change, cluster_fault_in


@cluster_fault_in("partitions", "pauses", "store")
def read_without_a_lease() -> list[Change]:
    """a gateway answers readers although its lease is over, so that another one may lead by now"""
    return [(Lease, "is_over", lambda _: False)]


@cluster_fault_in("partitions", "store", is_found=False)
def taken_over_within_the_lease() -> list[Change]:
    """a silent gateway is taken over before its lease is over, so that two gateways answer readers"""
    return [(silence, "conviction_s", lambda lease_s: lease_s / 4)]


@cluster_fault_in("pauses", "partitions")
def silent_gateways_not_sealed() -> list[Change]:
    """a silent gateway is fenced in the metadata, and its log is read up to the first missing object, without
    a seal there
    """

    async def create_at(self: Any, seq: int) -> Seal:
        return Seal(self._node_id, self._session, seq, self._nonce, self._by, self._reason)

    return [(sealing._Taker, "_create_at", create_at)]


@cluster_fault_in("pauses", "failovers")
def session_goes_on_behind_its_seal() -> list[Change]:
    """a gateway that finds the seal of its session confirms what follows"""
    return [
        (session_wal, "_FENCING", frozenset()),
        (session_wal, "_OWN", session_wal._OWN | {ObjectOutcome.SEALED}),
        (session_wal, "_NEXT", {**session_wal._NEXT, ObjectOutcome.SEALED: ObjectStep.REST}),
    ]


@cluster_fault_in("moves", "rolling", "joins")
def change_of_older_metadata() -> list[Change]:
    """a change that another gateway was quicker than is written behind the other change, without a new
    decision
    """
    commit = SharedJournal.commit

    async def insist(self: SharedJournal, records: Sequence[MetadataRecord]) -> bool:
        while not await commit(self, records):
            pass
        return True

    return [(SharedJournal, "commit", insist)]


@cluster_fault_in("failovers", "rolling")
def epoch_kept_at_a_failover() -> list[Change]:
    """the partitions of a gateway that has ended go to other gateways in the same leader epoch"""
    led = leadership._led

    def same(topic_id: Any, index: int, partition: Any, *arguments: Any) -> Any:
        record = led(topic_id, index, partition, *arguments)
        return msgspec.structs.replace(record, leader_epoch=partition.leader_epoch)

    return [(leadership, "_led", same)]


@cluster_fault_in("failovers", "rolling")
def logs_of_ended_sessions_not_read() -> list[Change]:
    """a gateway that takes a partition over reads its manifest, and no log of the sessions that have ended"""
    ended = StoredSessions.ended

    async def none_of(self: StoredSessions) -> Any:
        await ended(self)
        return ()

    return [(StoredSessions, "ended", none_of)]


@cluster_fault_in("moves", "joins")
def handed_over_without_the_upload() -> list[Change]:
    """a partition is handed over although the bucket's manifest lacks its newest records"""

    async def nothing(*_: object) -> None:
        pass

    return [(Uploads, "hand_over", nothing)]


@cluster_fault_in("moves", "failovers", "rolling")
def markers_at_other_gateways_left_out() -> list[Change]:
    """a transaction ends without markers in the partitions that other gateways lead"""

    async def written(
        _: RemoteMarkers, __: int, ___: object, ____: Sequence[TopicPartition], _____: int
    ) -> frozenset[TopicPartition]:
        return frozenset()

    return [(RemoteMarkers, "write", written)]


@cluster_fault_in("moves", "partitions")
def failed_markers_at_other_gateways_given_up() -> list[Change]:
    """a transaction ends although a gateway did not answer the request for its markers"""
    write = RemoteMarkers.write

    async def once(self: RemoteMarkers, *arguments: Any) -> frozenset[TopicPartition]:
        await write(self, *arguments)
        return frozenset()

    return [(RemoteMarkers, "write", once)]


@cluster_fault_in("joins", "store")
def orphans_judged_by_old_metadata() -> list[Change]:
    """a gateway searches for orphans without reading the metadata first, hears no news, and deletes what
    others have uploaded of new topics
    """

    async def nothing() -> None:
        pass

    def unheard(_: MetadataNews) -> None:
        # News may be lost at any time. Where they arrive, the metadata is seldom older than an upload.
        pass

    def partitions(services: Services) -> UploadedPartitions:
        return replace(uploaded_partitions(services), catch_up=nothing)

    return [(bucket_backend, "uploaded_partitions", partitions), (MetadataNews, "changed", unheard)]
