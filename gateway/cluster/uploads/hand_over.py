"""Uploads the whole of a partition before another gateway leads it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from gateway.cluster.parts.manifest import Manifest, PartitionKey
from gateway.cluster.uploads.collection import Coverage
from log import PartitionLog

MOST_TRIES: Final = 5
"""Uploads of a partition that is handed over, before that is given up because it changes all the time."""


class HandOverFailed(Exception):
    """A partition can't be handed over now: it stays with this gateway. The message says why."""


async def upload_whole(
    log: PartitionLog,
    flushed: Callable[[PartitionLog], Awaitable[None]],
    upload: Callable[[PartitionLog], Awaitable[Manifest]],
    coverage: Coverage,
) -> None:
    """Upload a log to which nobody appends, until its manifest has all that the session's log has of it.

    An upload itself may flush side files, which are in the session's log then and in no manifest. `upload` returns a manifest that counts.
    Raises HandOverFailed, and what `flushed` and `upload` raise.
    """
    for _ in range(MOST_TRIES):
        await flushed(log)
        manifest = await upload(log)
        partition = PartitionKey(log.topic_id, log.partition)
        if manifest.end_offset == log.log_end_offset and not coverage.has_rows(partition):
            return
    raise HandOverFailed(f"{log.topic}-{log.partition} changes while it is handed over")
