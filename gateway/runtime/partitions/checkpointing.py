"""Writes the checkpoint of recovery points while requests are served: collected in slices, written in a thread."""

from __future__ import annotations

import asyncio

from gateway.runtime.loop.slices import in_slices
from log import LogDirectory


async def write_checkpoint(log_directory: LogDirectory) -> None:
    """Write the recovery points of this moment to the checkpoint. Raises OSError."""
    async for _ in in_slices(log_directory.gather_checkpoint()):
        pass
    await asyncio.to_thread(log_directory.write_checkpoint)
