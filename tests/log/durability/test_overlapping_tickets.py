"""Tickets where rounds overlap: together they have every byte of the log, once and in order, and reopening
loses none.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.log import CachedDurability, FileRange, FlushTicket, PartitionLog, Storage, StorageFailed
from seqgate.log.environment import LogEnvironment
from seqgate.log.format.record_batch import whole_batches
from tests.log.support import NOW_MS, batch, delete_records, fill, open_log

STEPS: Final = st.lists(
    st.sampled_from(
        ["append", "append", "append many", "roll", "ticket", "ticket", "complete", "others", "reopen"]
    ),
    max_size=40,
)


def open_cached(directory: Path, *, max_open_files: int = 512) -> PartitionLog:
    storage = Storage(max_open_files)
    return open_log(directory, environment=LogEnvironment(storage, made_durable_by=CachedDurability(storage)))


def read(ticket: FlushTicket) -> list[tuple[FileRange, bytes]]:
    return [(part, ticket.read(part, part.position, part.size_bytes)) for part in ticket.ranges]


class Life:
    """One log, its tickets in flight, and what objects have."""

    def __init__(self, directory: Path, max_open_files: int) -> None:
        self.log = open_cached(directory, max_open_files=max_open_files)
        self.in_flight: deque[FlushTicket] = deque()
        self.sent: list[tuple[FileRange, bytes]] = []
        self.confirmed = 0

    def step(self, name: str) -> None:
        log = self.log
        match name:
            case "append":
                fill(log, 1)
            case "append many":
                fill(log, 20, count=3)
            case "roll":
                log.roll(NOW_MS)
            case "ticket":
                self.send()
            case "complete":
                self.complete()
            case "others":
                ticket = log.prepare_flush(counts_out=True)
                assert ticket is None or not ticket.ranges, "it has no records of its own"
                if ticket is not None:
                    self.in_flight.append(ticket)
                    if ticket.end_offset > self.end_offset:
                        self.in_flight.pop()
                        log.unflushed.take_back(ticket)
            case "reopen":
                log.go_offline("a test says so")
                self.complete()
                log.reopen(NOW_MS)
        self.check()

    @property
    def end_offset(self) -> int:
        """The end of what was sent."""
        return self.sent[-1][0].end_offset if self.sent else 0

    def send(self) -> None:
        ticket = self.log.prepare_flush()
        if ticket is not None:
            self.sent += read(ticket)
            self.in_flight.append(ticket)

    def complete(self) -> None:
        if self.in_flight:
            ticket = self.in_flight.popleft()
            self.log.complete_flush(ticket)
            self.confirmed = max(self.confirmed, ticket.end_offset)

    def check(self) -> None:
        assert self.log.recovery_point == self.confirmed
        assert self.log.high_watermark <= self.confirmed

    def finish(self) -> None:
        self.send()
        assert self.log.prepare_flush() is None, "everything is sent"
        assert self.log.unflushed.unsent_bytes(self.log.segments) == 0
        while self.in_flight:
            self.complete()
        assert self.log.recovery_point == self.log.log_end_offset
        offset = 0
        files: dict[int, bytes] = {}
        for part, content in self.sent:
            assert part.first_offset == offset
            assert part.position == len(files.get(part.segment_base, b""))
            files[part.segment_base] = files.get(part.segment_base, b"") + content
            batches = [header for _, header in whole_batches(content)]
            assert batches[0].base_offset == part.first_offset
            assert batches[-1].last_offset + 1 == part.end_offset
            offset = part.end_offset
        assert offset == self.log.log_end_offset
        stored = {
            segment.base_offset: Path(segment.file.path).read_bytes()
            for segment in self.log.segments.segments
        }
        assert files == {base: content for base, content in stored.items() if content}


@given(steps=STEPS, max_open_files=st.sampled_from([0, 2, 512]))
def test_tickets_have_every_byte_once_and_in_order(steps: list[str], max_open_files: int) -> None:
    with TemporaryDirectory() as directory:
        life = Life(Path(directory) / "log", max_open_files)
        for step in steps:
            life.step(step)
        life.finish()


def test_a_ticket_carries_only_its_own_bytes(tmp_path: Path) -> None:
    log = open_cached(tmp_path / "log")
    fill(log, 2)
    first = log.prepare_flush()
    fill(log, 1)
    second = log.prepare_flush()
    assert first is not None
    assert second is not None
    assert [part.end_offset for part in first.ranges] == [2]
    assert [(part.first_offset, part.end_offset) for part in second.ranges] == [(2, 3)]
    assert second.ranges[0].position == first.ranges[0].end_position
    log.complete_flush(first)
    assert log.recovery_point == 2


def test_a_removal_needs_no_bytes_of_its_own(tmp_path: Path) -> None:
    log = open_cached(tmp_path / "log")
    fill(log, 30)
    ticket = log.prepare_flush()
    assert ticket is not None
    log.complete_flush(ticket)
    log.advance_high_watermark(30)
    assert delete_records(log, 25) == 25
    fill(log, 1)
    last = log.prepare_flush()
    assert last is not None
    assert [(part.first_offset, part.end_offset) for part in last.ranges] == [(30, 31)]


def test_records_that_no_object_got_are_sent_again(tmp_path: Path) -> None:
    log = open_cached(tmp_path / "log")
    fill(log, 20)
    tickets = [log.prepare_flush()]
    fill(log, 20)
    tickets.append(log.prepare_flush())
    for ticket in tickets:
        assert ticket is not None
        log.fail_flush(ticket, OSError("a test says so"))
    assert log.offline
    log.reopen(NOW_MS)
    again = log.prepare_flush()
    assert again is not None
    assert (again.ranges[0].first_offset, again.ranges[-1].end_offset) == (0, 40)


def test_a_log_that_lost_sent_records_stays_offline(tmp_path: Path) -> None:
    log = open_cached(tmp_path / "log")
    fill(log, 5)
    ticket = log.prepare_flush()
    assert ticket is not None
    part = ticket.ranges[0]
    log.go_offline("a test says so")
    with Path(part.file.path).open("r+b") as file:
        file.truncate(part.size_bytes // 2)
    with pytest.raises(StorageFailed, match="restart the gateway to rebuild"):
        log.reopen(NOW_MS)
    assert log.offline
    with pytest.raises(StorageFailed, match="restart the gateway to rebuild"):
        log.reopen(NOW_MS)


def test_records_that_were_not_sent_yet_may_be_lost(tmp_path: Path) -> None:
    log = open_cached(tmp_path / "log")
    fill(log, 5)
    ticket = log.prepare_flush()
    assert ticket is not None
    fill(log, 1)
    log.go_offline("a test says so")
    with Path(ticket.ranges[0].file.path).open("r+b") as file:
        file.truncate(ticket.ranges[0].end_position + 3)
    log.reopen(NOW_MS)
    assert (log.log_end_offset, log.recovery_point, log.high_watermark) == (5, 0, 0)
    log.complete_flush(ticket)
    assert log.recovery_point == 5
    log.append(batch(), now_ms=NOW_MS)
    last = log.prepare_flush()
    assert last is not None
    assert [(part.first_offset, part.end_offset) for part in last.ranges] == [(5, 6)]


def test_a_file_that_lost_bytes_can_not_be_read(tmp_path: Path) -> None:
    log = open_cached(tmp_path / "log")
    fill(log, 5)
    ticket = log.prepare_flush()
    assert ticket is not None
    part = ticket.ranges[0]
    with Path(part.file.path).open("r+b") as file:
        file.truncate(part.size_bytes - 1)
    with pytest.raises(OSError, match="only"):
        ticket.read(part, part.position, part.size_bytes)


def test_after_a_failed_side_file_the_records_stay_durable(tmp_path: Path) -> None:
    log = open_cached(tmp_path / "log")
    fill(log, 5)
    ticket = log.prepare_flush()
    assert ticket is not None
    log.fail_flush(ticket, OSError("a test says so"), has_records=True)
    assert (log.offline, log.recovery_point) == (True, 5)
