"""The counter of Python calls sees every file that a request passes through, from the socket to the disk."""

from __future__ import annotations

import uvloop

from tests.performance.walks import run, table


def test_each_walk_is_counted() -> None:
    walks = uvloop.run(run())
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
    assert len(table(walks).splitlines()) == 2 + len(walks)
