"""`seqgate tasks` counts the files that wait to be deleted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seqgate.gateway.admin.server import ControlServer
from seqgate.gateway.cli import app
from tests.gateway.handlers.support import open_node


@pytest.mark.parametrize(
    ("waiting", "sentence"),
    [(1, "1 file or directory waits to be deleted."), (2, "2 files and directories wait to be deleted.")],
)
async def test_how_many_wait(tmp_path: Path, waiting: int, sentence: str) -> None:
    async with open_node(tmp_path) as node:
        deletions = node.services.partitions.log_directory.environment.deletions
        for number in range(waiting):
            deletions.add(str(tmp_path / f"{number}.deleted"), 2**62)
        control = ControlServer(node.services, tmp_path)
        assert await control.start()
        result = await asyncio.to_thread(CliRunner().invoke, app, ["tasks", "--data-dir", str(tmp_path)])
        await control.stop()
    assert result.stdout.splitlines()[-1] == sentence
