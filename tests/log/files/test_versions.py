from __future__ import annotations

from pathlib import Path

import pytest

from seqgate.log import IncompatibleFormat, Storage
from seqgate.log.files.file_names import DELAYED_RECORDS, LEADER_EPOCHS, LOG_START_OFFSET
from seqgate.log.files.sparse_disk import META, read_properties
from seqgate.log.recovery.load import check_partition
from seqgate.seq_validator import ProducerTable

SNAPSHOT = f"{7:020}.snapshot"


@pytest.mark.parametrize("version", ["0", "6", "", "-1", "1.0", "two", "٣"])
def test_a_directory_of_another_version_is_refused(tmp_path: Path, version: str) -> None:
    path = tmp_path / META
    path.write_text(f"version={version}\nnode.id=1\n")
    with pytest.raises(
        IncompatibleFormat, match=rf"{META} has (no version|version .*); this program reads versions 1 to 5"
    ):
        read_properties(Storage(), str(path))


@pytest.mark.parametrize("content", [b"", b"node.id=1\n", b"#version=1\n"])
def test_a_directory_without_a_version_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / META
    path.write_bytes(content)
    with pytest.raises(IncompatibleFormat, match="has no version"):
        read_properties(Storage(), str(path))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_all_versions_so_far_are_read(tmp_path: Path, version: int) -> None:
    path = tmp_path / META
    path.write_text(f"# written by hand\nversion={version}\nnode.id=1\n")
    assert read_properties(Storage(), str(path)) == {"version": str(version), "node.id": "1"}


@pytest.mark.parametrize("name", [LEADER_EPOCHS, LOG_START_OFFSET, DELAYED_RECORDS, SNAPSHOT])
@pytest.mark.parametrize(
    "content", [b"", b"0\n1\n", b"x\n0\n", b"0\n\xff", b"SQPS\x00\x09", b"SQDR" + bytes(40)]
)
def test_damage_is_left_to_who_reads_the_file(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    check_partition(Storage(), str(tmp_path), {name})


def test_a_flipped_bit_in_a_snapshot_is_damage_and_no_version(tmp_path: Path) -> None:
    content = bytearray(ProducerTable().snapshot(7))
    content[5] ^= 1
    (tmp_path / SNAPSHOT).write_bytes(content)
    check_partition(Storage(), str(tmp_path), {SNAPSHOT})
