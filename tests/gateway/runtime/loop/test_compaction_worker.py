"""A report of a compaction process counts for the job that it was made for, never for a later one."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.runtime.loop.compaction_worker import CompactionWorker
from seqgate.log import LogConfig, StorageFailed
from seqgate.log.compaction import CleanedSegment, CleaningFinished, CleaningJob, CleaningReport
from seqgate.log.compaction.job import encode_report
from tests.log.compaction.cleaning import begin, keyed
from tests.log.support import NOW_MS, flush, open_log

SEGMENT = CleanedSegment(base_offset=0, sources=[0], suffixes=[], size_bytes=0, has_aborted=False)


def finished(clean_end_offset: int) -> CleaningFinished:
    return CleaningFinished(
        clean_end_offset=clean_end_offset,
        keys=1,
        records_read=1,
        records_kept=1,
        bytes_read=0,
        bytes_kept=0,
        keyless_records=0,
    )


class Process:
    """A process that has written its reports. As of a real one, its end is seen once all is read."""

    pid = 1

    def __init__(self, *reports: CleaningReport) -> None:
        self.returncode: int | None = None
        self.is_killed = False
        self.stdin = self
        self.stdout = asyncio.StreamReader()
        for frame in map(encode_report, reports):
            self.stdout.feed_data(len(frame).to_bytes(4, "big") + frame)

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    def close(self) -> None: ...

    def kill(self) -> None:
        self.is_killed = True

    async def communicate(self) -> None:
        self.stdout.feed_eof()
        await self.stdout.read()
        self.returncode = -9 if self.is_killed else 0


@pytest.fixture
def job(tmp_path: Path) -> CleaningJob:
    log = open_log(tmp_path / "p", LogConfig(compact=True))
    log.append(keyed(("a", "1")), now_ms=NOW_MS)
    log.roll(NOW_MS)
    flush(log)
    return begin(log, now_ms=NOW_MS).job


class GivenUp(Exception):
    pass


@pytest.mark.parametrize(
    "error",
    [
        GivenUp(),
        StorageFailed("t-0 is offline"),
        OSError(errno.EMFILE, "Too many open files"),
        asyncio.CancelledError(),
    ],
)
async def test_the_error_of_a_swap_ends_the_process_and_its_reports_answer_no_later_job(
    job: CleaningJob, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    given_up = Process(SEGMENT, finished(50))
    processes = iter([given_up, Process(SEGMENT, finished(200))])

    async def start(*_: object, **__: object) -> Any:
        return next(processes)

    async def fail(_: CleanedSegment) -> None:
        raise error

    async def take(_: CleanedSegment) -> None: ...

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    worker = CompactionWorker()
    with pytest.raises(type(error)) as raised:
        await worker.clean(job, fail)
    assert raised.value is error
    assert given_up.returncode == -9, "the process has stopped writing"
    assert await worker.clean(job, take) == finished(200)
