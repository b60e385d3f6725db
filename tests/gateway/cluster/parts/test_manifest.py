from __future__ import annotations

from uuid import UUID

import msgspec
import pytest
from crc32c import crc32c

from seqgate.gateway.cluster.parts.manifest import (
    UNKNOWN,
    FileRef,
    Manifest,
    PartitionKey,
    PartRef,
    SegmentRef,
    decode_manifest,
    encode_manifest,
    file_name,
    manifest_key,
    part_key,
    part_name,
    partition_of,
)
from seqgate.gateway.cluster.parts.part_object import CorruptPart
from seqgate.log import IncompatibleFormat

PARTS = (PartRef("a", 0, 100, 5, 1), PartRef("b", 100, 50, 8, 2))
MANIFEST = Manifest(
    topic_id=UUID(int=7),
    partition=3,
    topic="flights",
    session=4,
    seq=20,
    log_start_offset=2,
    end_offset=9,
    segments=(SegmentRef(0, PARTS), SegmentRef(8)),
    files=(
        FileRef("leader-epoch-checkpoint", 3, 9, b"0\n0"),
        FileRef("00.names", 1 << 20, 9, stored="files-x"),
    ),
    stable_offset=6,
    last_aborts=bytes(34),
)


def changed(**fields: object) -> Manifest:
    return msgspec.structs.replace(MANIFEST, **fields)


def test_a_manifest_comes_back_as_it_was() -> None:
    assert decode_manifest(encode_manifest(MANIFEST), "m") == MANIFEST


def test_a_manifest_of_an_earlier_release_does_not_know_the_last_stable_offset() -> None:
    fields = msgspec.json.decode(msgspec.json.encode(MANIFEST))
    del fields["stable_offset"], fields["last_aborts"]
    content = msgspec.json.encode(fields)
    stored = msgspec.json.encode({"version": 1, "crc32c": crc32c(content), "manifest": msgspec.Raw(content)})
    assert decode_manifest(stored, "m") == changed(stable_offset=UNKNOWN, last_aborts=b"")


def test_the_objects_are_parts_and_large_files() -> None:
    assert MANIFEST.objects == {"a", "b", "files-x"}
    assert [segment.size_bytes for segment in MANIFEST.segments] == [150, 0]


def test_each_changed_byte_is_noticed_or_harmless() -> None:
    content = encode_manifest(MANIFEST)
    noticed = 0
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 7
        try:
            assert decode_manifest(bytes(flipped), "m") == MANIFEST
        except (CorruptPart, IncompatibleFormat):
            noticed += 1
    assert noticed > len(content) * 0.9


def test_a_later_version_is_told() -> None:
    with pytest.raises(IncompatibleFormat, match="m has version 2; this program reads version 1"):
        decode_manifest(encode_manifest(MANIFEST).replace(b'"version":1', b'"version":2'), "m")


@pytest.mark.parametrize(
    ("impossible", "why"),
    [
        (changed(log_start_offset=10), "impossible numbers"),
        (changed(seq=-1), "impossible numbers"),
        (changed(stable_offset=10), "impossible numbers"),
        (changed(stable_offset=-2), "impossible numbers"),
        (changed(segments=(SegmentRef(0, PARTS), SegmentRef(7))), "the segment 7 begins before"),
        (changed(segments=(SegmentRef(0, PARTS[1:]),)), "the parts of the segment 0 do not follow"),
        (changed(end_offset=7), "its parts go beyond its end"),
        (changed(files=(FileRef("x", 1, 1),)), "has no content, or two"),
    ],
)
def test_an_impossible_manifest_is_not_stored(impossible: Manifest, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        encode_manifest(impossible)


def test_keys_tell_their_partitions() -> None:
    partition = PartitionKey(UUID(int=7), 3)
    assert partition_of(manifest_key(partition)) == (partition, None)
    for name in (part_name(8, "0" * 32), file_name("f" * 32)):
        assert partition_of(part_key(partition, name)) == (partition, name)
    assert partition_of("parts/else") is None
