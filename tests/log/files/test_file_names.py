from __future__ import annotations

from seqgate.log.files.file_names import offset_name, parse_offset_name


def test_round_trip() -> None:
    assert offset_name(5, ".log") == "00000000000000000005.log"
    assert parse_offset_name(offset_name(2**63 - 1, ".timeindex")) == (2**63 - 1, ".timeindex")


def test_other_names() -> None:
    for name in (
        "partition.metadata",
        "5.log",
        "00000000000000000005.log.deleted",
        "x00000000000000000005.log",
        "",
    ):
        assert parse_offset_name(name) is None
