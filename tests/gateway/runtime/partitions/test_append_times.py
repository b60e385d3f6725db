"""Appends of which one now and then is timed."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from seqgate.gateway.runtime.partitions.partition import AppendTimes, Partition
from seqgate.log.errors import OutOfOrderSequence
from seqgate.log.format.batch_validation import HERE


class FakePartition:
    """A partition whose appends take a second each."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.given: list[Any] = []
        self.error: Exception | None = None

    def append(self, *arguments: Any, **named: Any) -> str:
        self.now_s += 1
        self.given.append((arguments, named))
        if self.error is not None:
            raise self.error
        return f"appended {len(self.given)}"


class Part:
    """A part that appends."""

    append: Any = staticmethod(Partition.append)


def test_the_next_append_is_timed_and_no_further_one() -> None:
    partition: Any = FakePartition()
    times = AppendTimes(lambda: partition.now_s)
    parts = [Part(), Part()]
    for part in parts:
        times.follow(partial(setattr, part, "append"))
    assert [part.append for part in parts] == [Partition.append, Partition.append]
    times.arm()
    assert parts[1].append(partition, memoryview(b""), 5, begins_at_zero=True) == "appended 1"
    named = {"begins_at_zero": True, "before": None, "record_check": HERE}
    assert partition.given == [((memoryview(b""), 5), named)]
    assert (times.durations.count, times.durations.sum_s) == (1, 1.0)
    assert [part.append for part in parts] == [Partition.append, Partition.append]


def test_a_refused_batch_is_not_timed() -> None:
    partition: Any = FakePartition()
    partition.error = OutOfOrderSequence("a gap")
    times = AppendTimes(lambda: partition.now_s)
    part = Part()
    times.follow(partial(setattr, part, "append"))
    times.arm()
    with pytest.raises(OutOfOrderSequence):
        part.append(partition, memoryview(b""), 5)
    assert times.durations.count == 0
    assert part.append is Partition.append
