"""Bytes that the disk changed before an object had them, and objects that can't be put: nothing wrong is
stored, and nobody waits for ever.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.runtime.partitions.unwritten import PutLimits
from seqgate.log import LogConfig, Storage
from seqgate.log.format.record_batch import whole_batches
from tests.gateway.runtime.partitions.object_scene import Scene, Stored
from tests.log.support import NOW_MS

LARGE = LogConfig(segment_bytes=1 << 20)
BATCHES = 5
OFFSET_AT, LENGTH_AT = 0, 8
"""The first bytes of the base offset and of the length of a batch. Its CRC covers neither."""


def _stored(at: Scene) -> Stored:
    stored = Stored()
    for rows, data in at.held.objects:
        for row, content in zip(rows, data, strict=True):
            for _, batch in whole_batches(content):
                assert batch.base_offset < BATCHES, row
        stored.add(rows, data)
    return stored


@pytest.mark.parametrize("put_max_bytes", [300, 8 << 20], ids=["divided", "whole"])
@pytest.mark.parametrize("number", [0, 2, BATCHES - 1])
@pytest.mark.parametrize(
    ("place", "bit"),
    [(OFFSET_AT, 0x40), (OFFSET_AT + 7, 1), (OFFSET_AT + 7, 8), (LENGTH_AT, 0x40), (LENGTH_AT + 3, 1)],
)
def test_a_flipped_bit_in_a_header_gets_into_no_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, place: int, bit: int, put_max_bytes: int
) -> None:
    monkeypatch.setattr(Storage, "was_just_written", lambda *_: False)
    at = Scene(
        tmp_path, partitions=2, latency_s=0.05, config=LARGE, limits=PutLimits(put_max_bytes=put_max_bytes)
    )
    for _ in range(BATCHES):
        at.append(0, size=100)
    at.append(1)
    path = Path(at.log.segments.active.file.path)
    content = bytearray(path.read_bytes())
    positions = [position for position, _ in whole_batches(content)]
    content[positions[number] + place] ^= bit
    path.write_bytes(content)
    at.loop.run_until_complete(at.flusher.idle())
    stored = _stored(at)
    reached = stored.end_offsets.get((at.log.topic_id, 0), 0)
    assert reached <= number
    assert at.log.offline
    assert at.log.high_watermark <= reached
    assert [is_persisted for index, _, is_persisted in at.answers if index == 1] == [True]
    assert not any(
        is_persisted for index, offset, is_persisted in at.answers if index == 0 and offset >= reached
    )
    path.write_bytes(bytes(content[: positions[number]]))
    at.log.reopen(NOW_MS)
    at.partition.start_flush()
    at.finish()


def test_an_object_that_can_not_be_put_fails_all_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = Scene(tmp_path, partitions=2)
    at.append(0)
    at.run()
    assert at.held.in_flight == 1

    def refuse(*_: Any) -> None:
        raise ValueError("a row can't be stored")

    monkeypatch.setattr(at.held, "put", refuse)
    at.append(0)
    at.append(1)
    at.loop.run_until_complete(at.flusher.idle())
    assert sorted(at.answers) == [(0, 0, False), (0, 1, False), (1, 0, False)]
    assert at.log.offline
    assert at.flusher.unwritten.size_bytes == 0
