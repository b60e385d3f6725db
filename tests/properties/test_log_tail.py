"""After its last segments were truncated or changed anywhere, a log recovers to a prefix of whole batches."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqgate.log import IncompatibleFormat, PartitionLog
from tests.log.support import NOW_MS, batch, open_log, read_log
from tests.support.batches import BatchView, read_batches

MAGIC_AT = 16
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def views(log: PartitionLog) -> list[BatchView]:
    found: list[BatchView] = []
    while not found or found[-1].base_offset + found[-1].last_offset_delta + 1 < log.log_end_offset:
        offset = found[-1].base_offset + found[-1].last_offset_delta + 1 if found else log.log_start_offset
        if offset >= log.log_end_offset:
            break
        found += read_batches(read_log(log, offset, 400, upper_bound=log.log_end_offset))[0]
    return found


def magic_positions(content: bytes) -> list[int]:
    """Return the position of each batch's magic."""
    positions, start = [], 0
    while start < len(content):
        positions.append(start + MAGIC_AT)
        start += 12 + int.from_bytes(content[start + 8 : start + 12], "big")
    return positions


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[BatchView]]:
    directory = tmp_path_factory.mktemp("tail") / "log"
    log = open_log(directory)
    for number in range(16):
        log.append(
            batch(1 + number % 3, codec=CODECS[number % 5], producer_id=1, base_sequence=log.log_end_offset),
            now_ms=NOW_MS,
        )
    whole = views(log)
    log.close(clean=True)
    return directory, whole


@settings(max_examples=200)
@given(st.data())
def test_cut_or_flipped_anywhere(original: tuple[Path, list[BatchView]], data: st.DataObject) -> None:
    source, whole = original
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "log"
        shutil.copytree(source, directory)
        path = data.draw(st.sampled_from(sorted(directory.glob("*.log"))))
        content = bytearray(path.read_bytes())
        if not content:
            return
        position = data.draw(st.integers(0, len(content) - 1))
        flips = data.draw(st.booleans())
        if flips:
            content[position] ^= data.draw(st.integers(1, 255))
        else:
            del content[position:]
        path.write_bytes(content)
        try:
            log = open_log(directory)
        except IncompatibleFormat:
            # no CRC covers the magic, which may be that of a later release; then nothing is truncated
            assert flips
            assert position in magic_positions(bytes(content))
            assert path.read_bytes() == content
            return
        found = views(log)
        for kept, before in zip(found, whole, strict=False):
            # No checksum protects the leader epoch: the CRC begins after it, as in Kafka.
            assert kept.crc_is_right
            assert (kept.base_offset, kept.payload, kept.base_sequence) == (
                before.base_offset,
                before.payload,
                before.base_sequence,
            )
        end = found[-1].base_offset + found[-1].last_offset_delta + 1 if found else 0
        assert log.log_end_offset == end
        entry = log.producers.get(1)
        assert (entry.next_sequence if entry else 0) == end
        again = log.append(batch(2, producer_id=1, base_sequence=end), now_ms=NOW_MS, leader_epoch=1)
        assert again.base_offset == end
        log.close(clean=False)
