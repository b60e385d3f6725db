"""Bytes of a segment file that changed on the disk: no manifest may claim the records that its parts do not
have.

The write-ahead log has the right bytes, and loses them once a manifest covers them.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seqgate.gateway.cluster.parts.manifest import Manifest
from seqgate.log import CorruptRecord, PartitionLog
from seqgate.log.format.record_batch import whole_batches
from tests.gateway.cluster.uploads.test_partition_uploads import Scene

LENGTH_AT, OFFSET_AT = 8, 0
"""The first bytes of the length and of the base offset of a batch. Its CRC covers neither."""
HIGHEST_BIT = 0x40
PLACES = ["first", "middle", "last"]


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    await scene.objects.close()


def _positions(log: PartitionLog, number: int) -> list[int]:
    path = Path(log.segments.segments[number].file.path)
    return [position for position, _ in whole_batches(path.read_bytes())]


def _flip(log: PartitionLog, number: int, position: int, bit: int) -> None:
    path = Path(log.segments.segments[number].file.path)
    content = bytearray(path.read_bytes())
    content[position] ^= bit
    path.write_bytes(content)


def _covers_no_more_than_its_parts(manifest: Manifest) -> bool:
    filled = [segment for segment in manifest.segments if segment.parts]
    last = manifest.segments[-1]
    reached = last.parts[-1].end_offset if last.parts else last.base
    return bool(filled) and reached == manifest.end_offset


@pytest.mark.parametrize("number", [-1, -2], ids=["active", "closed"])
@pytest.mark.parametrize("which", PLACES)
@pytest.mark.parametrize(
    ("at", "bit"),
    [
        (LENGTH_AT, HIGHEST_BIT),
        (LENGTH_AT + 3, 1),
        (OFFSET_AT, HIGHEST_BIT),
        (OFFSET_AT + 7, 1),
        (OFFSET_AT + 7, 4),
        (OFFSET_AT + 6, 1),
    ],
)
async def test_a_flipped_bit_in_a_header_keeps_the_manifest_as_it_is(
    scene: Scene, number: int, which: str, at: int, bit: int
) -> None:
    positions = _positions(scene.log, number)
    assert len(positions) > 2
    before = await scene.stored()
    _flip(scene.log, number, positions[{"first": 0, "middle": 1, "last": -1}[which]] + at, bit)
    with pytest.raises(CorruptRecord):
        await scene.uploads.upload(scene.log)
    assert await scene.stored() == before, "the objects of an upload that failed are deleted"


@pytest.mark.parametrize("which", PLACES)
async def test_a_file_that_somebody_cut_keeps_the_manifest_as_it_is(scene: Scene, which: str) -> None:
    position = _positions(scene.log, -1)[{"first": 0, "middle": 1, "last": -1}[which]]
    os.truncate(scene.log.segments.active.file.path, position)
    with pytest.raises(CorruptRecord):
        await scene.uploads.upload(scene.log)


async def test_a_sound_log_is_covered_to_its_end(scene: Scene) -> None:
    manifest = (await scene.uploads.upload(scene.log)).manifest
    assert manifest.end_offset == scene.log.log_end_offset
    assert _covers_no_more_than_its_parts(manifest)
