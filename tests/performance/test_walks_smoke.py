"""The counter of Python calls sees every file that a request passes through, from the socket to the disk, and
no walk costs more than docs/architecture.md says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
import uvloop

from tests.performance.walks import Walk, run, table

PAGE: Final = Path(__file__).parents[2] / "docs/architecture.md"
MORE_AT_MOST: Final = 1.1
"""A walk may cost so much more than the page says, because a timer that fires adds some calls to all
repetitions.
"""


@pytest.fixture(scope="module")
def walks() -> Mapping[str, Walk]:
    return uvloop.run(run())


def test_the_page_has_every_walk_and_none_costs_more(walks: Mapping[str, Walk]) -> None:
    rows = re.findall(r"^\| ([^|]+) \| (\d+) \| (\d+) \| (\d+) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    page = {title: tuple(map(int, counts)) for title, *counts in rows}
    assert set(page) == set(walks)
    for title, walk in walks.items():
        for found, said in zip(walk.row, page[title], strict=False):
            assert found <= said * MORE_AT_MOST, f"{title}: {walk.row} instead of {page[title]}"


def test_each_walk_is_counted(walks: Mapping[str, Walk]) -> None:
    again = walks["Produce that repeats the last one, with other records"]
    for file in ("gateway/server/connection.py", "log/partition_log.py", "log/files/storage.py"):
        assert file in again.files
    assert again.calls < walks["Produce with a new prefix"].calls
    init = walks["InitProducerId v4, block at hand"]
    assert "pid_allocator/allocator.py" in init.files
    assert not any(file.startswith("log/") for file in init.files)
    assert any(
        file.startswith("log/")
        for file in walks["OffsetCommit v8 that repeats the last one, with another offset"].files
    )
    assert len(table(dict(walks)).splitlines()) == 2 + len(walks)
