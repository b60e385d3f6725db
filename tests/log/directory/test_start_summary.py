"""The line that says what a start found in the data directory."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.log.directory.test_log_directory import created, open_directory

LOGGER = "seqgate.log.directory.log_directory"


def test_each_kind_of_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tmp_path / "data"
    with caplog.at_level(logging.INFO, LOGGER):
        directory = created(root, 0, 1)
        # Killed before the first checkpoint: no file says that there were partitions.
        directory.close(clean=False)
        directory = open_directory(root)
        directory.close()
        open_directory(root).close()
    assert [record.message for record in caplog.records if record.name == LOGGER] == [
        f"{root}: new data directory",
        f"{root}: no clean stop recorded: partitions 2, 2 of them checked, nothing cut off",
        f"{root}: clean stop: partitions 2, no record data read",
    ]
