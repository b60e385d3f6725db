"""When a round of uploads begins by itself."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import NoReturn

import pytest

from seqgate.gateway.cluster.objects.objects import Refused
from seqgate.gateway.cluster.parts.manifest import PartitionKey
from seqgate.gateway.cluster.uploads.partition_uploads import UploadLimits
from seqgate.gateway.cluster.uploads.uploads import ADOPTED_AFTER_S
from seqgate.gateway.cluster.wal.ended import EndedSession
from seqgate.gateway.cluster.wal.wal_object import DataRow, WalObject, boundary_key, encode, object_key
from tests.gateway.cluster.uploads.walk import PLAIN, Walk
from tests.support.simulated_objects import Stored

INTERVAL_S = 600.0
MAX_BYTES = 2_000


@pytest.fixture
def walk(tmp_path: Path) -> Walk:
    walk = Walk(tmp_path)
    walk.prepare()
    walk.finish()
    return walk


def _begin(walk: Walk) -> list[float]:
    """Begin to run rounds; return the list of the times at which rounds begin."""
    times: list[float] = []
    uploads, round_of = walk.uploads, walk.uploads.round

    async def noted() -> None:
        times.append(walk.loop.time() - begun_s)
        await round_of()

    uploads._limits = UploadLimits(INTERVAL_S, MAX_BYTES, 1e9)
    uploads._asks_s = -math.inf
    uploads.round = noted  # type: ignore[method-assign]
    begun_s = walk.loop.time()

    async def start() -> None:
        uploads.start()

    walk.run(start())
    return times


def _pass(walk: Walk, seconds: float) -> None:
    walk.run(asyncio.sleep(seconds))


def test_after_the_interval(walk: Walk) -> None:
    times = _begin(walk)
    _pass(walk, 3.5 * INTERVAL_S)
    assert [round(each / INTERVAL_S) for each in times] == [1, 2, 3]
    walk.run(walk.uploads.stop())
    walk.end()


def _ended_log(walk: Walk) -> str:
    """Give PLAIN records in the log of an earlier session; return the key of the object."""
    walk.append(PartitionKey(PLAIN, 0), 3)
    walk.run(walk.flusher.idle())
    end = walk.plain.log.log_end_offset
    row = DataRow(PLAIN, 0, 0, end - 3, end, 0, 0, 3)
    key = object_key(1, 99, 0)
    content = b"".join(encode(WalObject(1, 99, 0, b"n" * 16, [row], [b"abc"])))
    walk.bucket.create(key, content, walk.loop.time())
    walk.sessions.known.append(EndedSession(1, 99, b"n" * 16, 1))
    return key


def test_soon_after_a_start_that_finds_logs_of_earlier_sessions(walk: Walk) -> None:
    key = _ended_log(walk)
    times = _begin(walk)
    _pass(walk, INTERVAL_S - 1)
    assert len(times) == 1
    assert ADOPTED_AFTER_S <= times[0] <= ADOPTED_AFTER_S + 2
    assert walk.bucket.content(key) is None, "the log is collected"
    walk.run(walk.uploads.stop())
    walk.end()


@pytest.mark.parametrize("fails", ["looking the records up", "uploading them"])
def test_again_soon_after_a_failure_of_the_store(
    walk: Walk, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    key = _ended_log(walk)
    times = _begin(walk)

    async def refuse(*_: object) -> NoReturn:
        monkeypatch.undo()
        raise Refused("a test says so")

    if fails == "uploading them":
        monkeypatch.setattr(walk.uploads, "_upload", refuse)
    else:
        monkeypatch.setattr(walk.uploads.ended, "uncovered", refuse)
    _pass(walk, 2 * ADOPTED_AFTER_S + 4)
    assert len(times) == (2 if fails == "uploading them" else 1)
    assert walk.bucket.content(key) is None, "the log is collected"
    _pass(walk, INTERVAL_S - 3 * ADOPTED_AFTER_S)
    assert len(times) == (2 if fails == "uploading them" else 1)
    walk.run(walk.uploads.stop())
    walk.end()


def test_a_round_uploads_where_the_records_of_earlier_sessions_can_not_be_looked_up(walk: Walk) -> None:
    walk.append(PartitionKey(PLAIN, 0), 30)
    walk.run(walk.flusher.idle())
    walk.uploads._asks_s = -math.inf
    walk.sessions.is_collector = False
    walk.bucket.objects[boundary_key(1, 99)] = Stored(b"damaged", 0, 0)
    walk.sessions.known.append(EndedSession(1, 99, b"n" * 16, 1))
    walk.run(walk.uploads.round())
    assert not walk.coverage.size_bytes
    walk.end()


def test_each_time_that_the_log_has_grown_by_its_limit(walk: Walk) -> None:
    times = _begin(walk)
    for _ in range(5):
        walk.append(PartitionKey(PLAIN, 0), 30)
        _pass(walk, 5)
    assert len(times) == 5
    walk.run(walk.uploads.stop())
    walk.end()


def test_what_a_round_could_not_upload_begins_no_further_rounds(walk: Walk) -> None:
    """One partition that stays offline must not make the others upload every second: each of them would be a
    replaced manifest.
    """
    times = _begin(walk)
    walk.append(PartitionKey(PLAIN, 0), 60)
    walk.run(walk.flusher.idle())
    walk.plain.log.go_offline("a test says so")
    walk.plain.log.log_end_offset += 1  # records that are not durable keep the upload from its end
    _pass(walk, INTERVAL_S - 10)
    assert walk.coverage.size_bytes > MAX_BYTES
    assert len(times) == 1
    walk.run(walk.uploads.stop())
