from __future__ import annotations

import pytest

from gateway.runtime.loop.file_handles import FEWEST, SPARE, shared_out


@pytest.mark.parametrize(
    ("limit", "files", "connections"),
    [
        (1_000_000, 512, 1_000_000 - SPARE - 512),
        (1024, 480, 480),
        (160, 48, 48),
        (SPARE, FEWEST, FEWEST),
        (1, FEWEST, FEWEST),
    ],
)
def test_connections_leave_files_what_they_need(limit: int, files: int, connections: int) -> None:
    assert shared_out(limit, 512) == (connections, files)
