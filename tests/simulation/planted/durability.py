"""Mistakes about the moment at which data is durable."""

from __future__ import annotations

import contextlib
from typing import Any

from seqgate.gateway.handlers.records import produce
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.log import Appended, FlushTicket, LocalDurability, Storage, retention
from seqgate.log.durability.unflushed import LogStart
from seqgate.log.partition_log import PartitionLog
from tests.simulation.planted.fault import Change, fault, fault_in


@fault_in("power")
def acknowledged_before_the_flush() -> list[Change]:
    """acks=all is answered when the batch is written, before it is durable"""

    def is_persisted(self: Partition, last_offset: int) -> bool:
        return last_offset < self.log.log_end_offset

    return [(Partition, "is_persisted", is_persisted)]


@fault_in("power")
def visible_before_the_flush() -> list[Change]:
    """the high watermark moves with the write, although acknowledgements wait for the flush"""
    append = Partition.append

    def visible(self: Partition, *args: Any, **kwargs: Any) -> Appended:
        info = append(self, *args, **kwargs)
        self.log.advance_high_watermark_to_end()
        return info

    def is_persisted(self: Partition, last_offset: int) -> bool:
        return last_offset < self.log.recovery_point

    return [(Partition, "append", visible), (Partition, "is_persisted", is_persisted)]


@fault_in("power")
def duplicate_acknowledged_at_once() -> list[Change]:
    """a retry is answered without waiting for the flush of its original"""
    append = Partition.append

    def answered(self: Partition, *args: Any, **kwargs: Any) -> Appended:
        info = append(self, *args, **kwargs)
        return info._replace(answer_after=-1) if info.is_duplicate else info

    return [(Partition, "append", answered)]


@fault_in("power")
def recompressed_batch_acknowledged_before_the_flush() -> list[Change]:
    """a batch that a thread has recompressed is acknowledged when it is written, before it is durable"""
    append_late = produce._Appending._append_late

    def answered(self: Any, batch: Any, outcome: Any) -> None:
        request = self._request
        self._request = request._replace(acks=0)
        append_late(self, batch, outcome)
        self._request = request

    return [(produce._Appending, "_append_late", answered)]


@fault_in("disk")
def failed_flush_believed() -> list[Change]:
    """the error of a failed fsync is logged and then ignored"""
    fdatasync = Storage.fdatasync

    def believed(self: Storage, file: Any) -> None:
        with contextlib.suppress(OSError):
            fdatasync(self, file)

    return [(Storage, "fdatasync", believed)]


@fault_in("disk")
def failed_flush_repeated() -> list[Change]:
    """after a failed fsync the next one counts, although the kernel has dropped the pages (fsyncgate)"""

    def fdatasync(self: Storage, file: Any) -> None:
        self._sync(file)

    def stay_online(self: PartitionLog, ticket: FlushTicket, error: OSError) -> None:
        self.unflushed.take_back(ticket)

    return [(Storage, "fdatasync", fdatasync), (PartitionLog, "fail_flush", stay_online)]


@fault_in("power")
def flush_without_the_data() -> list[Change]:
    """a flush makes side files and names durable and leaves the data file out"""
    run = LocalDurability.persist

    def forgetful(self: LocalDurability, ticket: FlushTicket) -> None:
        files, ticket.data = ticket.data, []
        try:
            run(self, ticket)
        finally:
            ticket.data = files

    return [(LocalDurability, "persist", forgetful)]


@fault_in("segments")
def flush_of_the_active_segment_only() -> list[Change]:
    """after a roll, the unflushed end of the previous segment is never flushed"""
    run = LocalDurability.persist

    def short(self: LocalDurability, ticket: FlushTicket) -> None:
        files, ticket.data = ticket.data, ticket.data[-1:]
        try:
            run(self, ticket)
        finally:
            ticket.data = files

    return [(LocalDurability, "persist", short)]


@fault_in("segments")
def roll_without_the_directory() -> list[Change]:
    """a roll does not flush the directory, so a power cut removes the new segment's name"""
    roll = PartitionLog.roll

    def forgetful(self: PartitionLog, now_ms: int) -> bool:
        is_rolled = roll(self, now_ms)
        self.unflushed._paths, self.unflushed._directories = [], []
        return is_rolled

    return [(PartitionLog, "roll", forgetful)]


@fault
def new_partition_without_its_directory() -> list[Change]:
    """the first write of a new partition counts as durable before its directory is flushed"""
    init = PartitionLog.__init__

    def forgetful(self: PartitionLog, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self.unflushed._paths, self.unflushed._directories = [], []

    return [(PartitionLog, "__init__", forgetful)]


@fault_in("power")
def replaced_without_a_flush() -> list[Change]:
    """a small file is replaced by write and rename without flushing either"""

    def replace(self: LocalDurability, path: str, content: bytes) -> None:
        self._storage.write_file(path + ".tmp", content)
        self._storage.rename(path + ".tmp", path)

    return [(LocalDurability, "replace", replace)]


@fault_in("deletions")
def deleted_records_come_back() -> list[Change]:
    """DeleteRecords moves the log start only in memory"""
    return [(LogStart, "advance", lambda *_: None)]


@fault_in("deletions")
def deletes_whole_segments() -> list[Change]:
    """DeleteRecords deletes up to the end of the segment"""
    prepare = retention._prepare

    def rounded(log: PartitionLog, new_start: int, *args: Any) -> Any:
        ends = [base for base in log.segments.bases[1:] if base >= new_start]
        return prepare(log, min(ends[0], log.high_watermark) if ends else new_start, *args)

    return [(retention, "_prepare", rounded)]
