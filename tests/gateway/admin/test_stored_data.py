from __future__ import annotations

from pathlib import Path

from gateway.admin.stored_data import partition_directories


def test_directories_of_a_topic(tmp_path: Path) -> None:
    for name in ("t-10", "t-2", "t-2.0a1b-delete", "t-x", "t-x-3", "other-1"):
        (tmp_path / name).mkdir()
    (tmp_path / "t-4").write_bytes(b"")
    assert {path.name for path in partition_directories(tmp_path, "t")} == {"t-2", "t-10"}
