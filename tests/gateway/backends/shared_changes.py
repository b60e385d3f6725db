"""A metadata log that several nodes of one process share: each change is decided on all changes before it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from seqgate.gateway.metadata.records import MetadataRecord
from seqgate.gateway.runtime.topics.metadata_log import FoldedImage, change_batch
from seqgate.log import PartitionLog


class SharedChanges:
    """The changes, in the order in which they were committed."""

    def __init__(self) -> None:
        self.changes: list[Sequence[MetadataRecord]] = []

    def journal(self, log: PartitionLog) -> SharedJournal:
        return SharedJournal(self, log)


class SharedJournal:
    """One node's view of the changes; its local log is a cache of them."""

    def __init__(self, shared: SharedChanges, log: PartitionLog) -> None:
        self.folded = FoldedImage(log)
        self._shared = shared
        self._log = log
        self._done = 0

    async def catch_up(self) -> None:
        while self._done < len(self._shared.changes):
            records = self._shared.changes[self._done]
            self._done += 1
            self._log.append(change_batch(records, 0), now_ms=0, is_client=False)
            self._log.advance_high_watermark(self._log.log_end_offset)
            await self.folded.fold_in(records, self._log.log_end_offset)

    async def commit(self, records: Sequence[MetadataRecord]) -> bool:
        await asyncio.sleep(0.001)  # another node may be first
        if self._done < len(self._shared.changes):
            await self.catch_up()
            return False
        self._shared.changes.append(records)
        await self.catch_up()
        return True
