"""A Produce gets the right answer at the right time, also when its partitions fail, reopen or are deleted
meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from seqgate.gateway.handlers.records.produce_append import STORAGE_ERROR, PendingAnswer
from seqgate.gateway.protocol.produce_codec import ProduceRow
from seqgate.gateway.runtime.partitions.flusher import Waiting
from seqgate.log import Appended


class FakePartition:
    def __init__(self, index: int) -> None:
        self.index = index
        self.high_watermark = 0
        self._waiting: list[Waiting] = []

    def is_persisted(self, last_offset: int) -> bool:
        return last_offset < self.high_watermark

    def when_decided(self, offset: int, then: Callable[[bool], None]) -> None:
        owner: Any = self
        self._waiting.append(Waiting(owner, offset, then))

    def flush_is_over(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.resolve()


def pending_rows(partitions: list[Any]) -> tuple[PendingAnswer, list[ProduceRow]]:
    context: Any = SimpleNamespace(
        api_version=9, correlation_id=1, peer=SimpleNamespace(), services=SimpleNamespace(waits=None)
    )
    info = Appended(0, 0, -1, 0, False, 0)
    rows: list[ProduceRow] = []
    pending = PendingAnswer(context, [("orders", rows)], 30_000)
    for partition in partitions:
        rows.append(ProduceRow(partition.index, 0, info.base_offset, -1, 0))
        pending.wait(rows, len(rows) - 1, partition, info)
    return pending, rows


def test_each_partition_is_answered_after_its_own_flush() -> None:
    failed, slow = FakePartition(0), FakePartition(1)
    pending, rows = pending_rows([failed, slow])
    deferred = pending.complete()
    failed.flush_is_over()
    # the partition is reopened, and other records are flushed at the same offset
    failed.high_watermark = 5
    slow.high_watermark = 1
    assert deferred.answer is None
    slow.flush_is_over()
    assert deferred.answer is not None
    assert [row.error_code for row in rows] == [STORAGE_ERROR, 0]


def test_flushes_that_end_before_the_last_batch_is_appended_do_not_answer() -> None:
    quick = FakePartition(0)
    pending, _ = pending_rows([quick])
    quick.high_watermark = 1
    quick.flush_is_over()
    assert pending.deferred.answer is None
    assert pending.complete().answer is not None
