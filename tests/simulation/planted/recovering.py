"""Mistakes in a start's recovery."""

from __future__ import annotations

from typing import Any

from seqgate.log.partition_log import PartitionLog
from seqgate.log.recovery import load as recovery
from seqgate.log.recovery.checking import Checking
from seqgate.log.recovery.load import _Loader
from seqgate.log.recovery.producer_recovery import Undecided, load_producers
from seqgate.log.segments import scan
from seqgate.log.segments.scan import EVERYWHERE
from seqgate.log.segments.segment import Segment
from seqgate.seq_validator import ProducerTable
from tests.simulation.planted.fault import Change, fault, fault_in


@fault
def recovery_drops_the_last_batch() -> list[Change]:
    """an off-by-one error cuts the last whole batch as if it was torn"""
    check = Checking._check_segment

    def drop(self: Checking, segment: Segment, next_offset: int, next_base: int) -> int:
        if segment.size_bytes:
            segment.size_bytes -= 1
        return check(self, segment, next_offset, next_base)

    return [(Checking, "_check_segment", drop)]


@fault_in("power")
def recovery_checks_no_crc() -> list[Change]:
    """a batch counts as whole when its bytes exist, even if they are torn"""
    return [(scan, "crc_matches", lambda *_: True)]


@fault_in("segments")
def recovery_trusts_offsets() -> list[Change]:
    """recovery continues behind a hole in the log, as a lost write leaves one"""
    check = Checking._check_from

    def trusting(self: Checking, first: int) -> int:
        self._may_lack = EVERYWHERE
        return check(self, first)

    return [(Checking, "_check_from", trusting)]


@fault
def producers_forgotten_at_start() -> list[Change]:
    """producer state is not restored, so retries are stored again and any first sequence is accepted"""
    load = load_producers

    def forget(*args: Any, **kwargs: Any) -> ProducerTable:
        table = load(*args, **kwargs)
        for entry in list(table):
            if not entry.has_open_transaction:
                table.forget(entry)
        return table

    return [(recovery, "load_producers", forget)]


@fault
def duplicates_forgotten_at_start() -> list[Change]:
    """a snapshot has a producer's next sequence, but not its last batches"""
    load = load_producers

    def forget(*args: Any, **kwargs: Any) -> ProducerTable:
        table = load(*args, **kwargs)
        for entry in list(table):
            while len(entry.batches) > 1:
                del entry.batches[0]
        return table

    return [(recovery, "load_producers", forget)]


@fault
def transactions_forgotten_at_start() -> list[Change]:
    """the open transactions of a partition are not restored"""
    load = load_producers

    def forget(*args: Any, **kwargs: Any) -> ProducerTable:
        table = load(*args, **kwargs)
        for entry in list(table):
            entry.current_transaction_first_offset = -1
        return table

    return [(recovery, "load_producers", forget)]


@fault
def aborts_forgotten_at_start() -> list[Change]:
    """the index of aborted transactions is not rebuilt after a crash"""

    def forget(self: _Loader, _: Undecided) -> None:
        for segment in self.segments:
            segment.aborts.forget()
        self.segments[-1].aborts.hold()

    return [(_Loader, "load_transaction_indexes", forget)]


@fault
def high_watermark_goes_back() -> list[Change]:
    """after a start the high watermark is that of the last checkpoint until the next flush"""
    begin_with = PartitionLog._begin_with

    def behind(self: PartitionLog, *args: Any) -> None:
        begin_with(self, *args)
        self.high_watermark = max(self.log_start_offset, self.segments.active.base_offset)

    return [(PartitionLog, "_begin_with", behind)]
