from __future__ import annotations

from pathlib import Path

import pytest

from seqgate.log import Storage
from seqgate.log.directory.damage_scan import stored_batches
from seqgate.log.files.file_names import LOG_SUFFIX, offset_name
from tests.support.batches import Batch, records

FIRST, SECOND = (Batch(records(count)).encode() for count in (2, 3))


def counts(directory: Path) -> list[int]:
    return [header.record_count for header, batch in stored_batches(Storage(), directory) if len(batch)]


def write(directory: Path, offset: int, content: bytes) -> None:
    (directory / offset_name(offset, LOG_SUFFIX)).write_bytes(content)


def test_all_segments_in_order(tmp_path: Path) -> None:
    write(tmp_path, 5, FIRST)
    write(tmp_path, 0, FIRST + SECOND)
    (tmp_path / "00000000000000000000.index").write_bytes(b"no batch")
    assert counts(tmp_path) == [2, 3, 2]


@pytest.mark.parametrize("left", [1, 11, 60, len(SECOND) - 1])
def test_a_torn_batch_ends_it(tmp_path: Path, left: int) -> None:
    write(tmp_path, 0, FIRST + SECOND[:left])
    write(tmp_path, 5, FIRST)
    assert counts(tmp_path) == [2]


@pytest.mark.parametrize("spoiled", [b"\0" * len(SECOND), SECOND[:-1] + bytes([SECOND[-1] ^ 1])])
def test_a_spoiled_batch_ends_it(tmp_path: Path, spoiled: bytes) -> None:
    write(tmp_path, 0, FIRST + spoiled + FIRST)
    assert counts(tmp_path) == [2]
