"""Requests that wait until the metadata shows something, such as the new leader of a partition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.records import MetadataRecord
from seqgate.gateway.runtime.topics.metadata_log import MetadataLog


class ImageWaiters:
    """Those who wait for the metadata. Each looks again after every change."""

    def __init__(self, metadata_log: MetadataLog) -> None:
        self._metadata_log = metadata_log
        self._waiters: set[asyncio.Event] = set()
        metadata_log.add_listener(self._changed)

    async def until(self, condition: Callable[[MetadataImage], bool], limit_s: float) -> bool:
        """Wait until the condition is true of the image; return False if it is not after `limit_s`."""
        changed = asyncio.Event()
        self._waiters.add(changed)
        try:
            async with asyncio.timeout(limit_s):
                while not condition(self._metadata_log.image):
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(changed)
        return True

    async def _changed(self, _: Sequence[MetadataRecord]) -> None:
        for changed in self._waiters:
            changed.set()
