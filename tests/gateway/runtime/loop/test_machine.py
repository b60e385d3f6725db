from __future__ import annotations

import pytest

from seqgate.gateway.runtime.loop.machine import FEWEST_HANDLES, SPARE_HANDLES, split_file_handles


@pytest.mark.parametrize(
    ("limit", "files", "connections"),
    [
        (1_000_000, 512, 1_000_000 - SPARE_HANDLES - 512),
        (1024, 480, 480),
        (160, 48, 48),
        (SPARE_HANDLES, FEWEST_HANDLES, FEWEST_HANDLES),
        (1, FEWEST_HANDLES, FEWEST_HANDLES),
    ],
)
def test_connections_leave_files_what_they_need(limit: int, files: int, connections: int) -> None:
    assert split_file_handles(limit, 512) == (connections, files)
