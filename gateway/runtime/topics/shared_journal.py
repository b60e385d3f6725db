"""The journal of a metadata log that many gateways share: a change is an object of the bucket, created only
if its place is empty.

The local log of `__cluster_metadata` is a copy, which spares the next start some reading. It is no part of
any write-ahead log, and nothing waits for it. If the local disk refuses a change, the copy ends there, and
the next start makes it anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NoReturn, TypeVar

from seqgate.gateway.cluster.metadata.change import CorruptChange, StoredChange
from seqgate.gateway.cluster.metadata.shared_log import MOST_READS, Entry, SharedLog
from seqgate.gateway.cluster.objects.objects import Refused
from seqgate.gateway.cluster.wal.sessions import CorruptRegistration, LogShortened
from seqgate.gateway.cluster.wal.wal_object import CorruptWalObject
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.records import MetadataRecord, UnknownRecordError, decode_record
from seqgate.gateway.runtime.loop.clock import Clock
from seqgate.gateway.runtime.topics.metadata_log import FoldedImage, change_batch
from seqgate.gateway.tasks import settle
from seqgate.log import CachedDurability, IncompatibleFormat, LogError, PartitionLog, StorageFailed
from seqgate.log.format.records import iterate_records

logger = logging.getLogger(__name__)

T = TypeVar("T")
Condition = Callable[[MetadataImage], str | None]
#: Returns a sentence if the image says that this gateway must not change the metadata any more.


class SharedJournal:
    def __init__(
        self,
        log: PartitionLog,
        shared: SharedLog,
        durability: CachedDurability,
        clock: Clock,
        ended_if: Condition = lambda _image: None,
    ) -> None:
        """`log` is the local copy; it ends where `shared` begins. `folded` must replay it before anything
        else. `ended_if` judges the image after each change: a sentence ends this gateway's right to change
        the metadata, for ever.
        """
        self.folded = FoldedImage(log)
        self._log = log
        self._shared = shared
        self._durability = durability
        self._clock = clock
        self._is_copying = True
        """Whether the local log has every change so far."""
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.ended_if = ended_if
        self.on_ended: list[Callable[[str], None]] = []
        """Called once with the sentence of `ended_if`, or when this release can't read a change."""

    @property
    def copied(self) -> tuple[int, int] | None:
        """The first object, and the first offset, that the local log lacks; None if it misses changes."""
        return (self._shared.next_seq, self._shared.next_offset) if self._is_copying else None

    @property
    def has_ended(self) -> bool:
        """Whether every later call raises StorageFailed. Before, an error is that of one call."""
        return self._ended.done()

    async def has_more(self) -> bool:
        """Return whether others changed the metadata since the last look. Raises StoreFailed, Refused."""
        return await self._shared.has_more()

    async def catch_up(self) -> None:
        """Fold in all changes in the bucket. Waits until the store answers. Raises StorageFailed."""
        at_once = 1
        while entries := await self._settled(self._shared.read(at_once)):
            for entry in entries:
                await self._take(entry)
            if self.has_ended:
                raise StorageFailed(self._ended.result())
            if len(entries) < at_once:
                return
            at_once = min(2 * at_once, MOST_READS)

    async def commit(self, records: Sequence[MetadataRecord]) -> bool:
        """Make the records the next change, and fold them in; False if another gateway was first, whose
        change is folded in. Waits until the store answers. Raises StorageFailed; the change may then be in
        the bucket all the same, and is folded in later.
        """
        batch = change_batch(records, self._clock.now_ms())
        made = await self._settled(self._shared.create(batch))
        if made is None:
            await self.catch_up()
            return False
        await self._take(made)
        return True

    def give_up(self, reason: str) -> None:
        """Fail the change in progress, and all from now on: the gateway stops, or its session has ended."""
        settle(self._ended, reason)

    async def _settled(self, call: Coroutine[Any, Any, T]) -> T:
        """Return the call's result. Raises StorageFailed for its errors, and once the journal has ended."""
        if self.has_ended:
            call.close()
            raise StorageFailed(self._ended.result())
        running = asyncio.ensure_future(call)
        try:
            await asyncio.wait((running, self._ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not running.done():
                running.cancel()
        if not running.done():
            raise StorageFailed(self._ended.result())
        try:
            return running.result()
        except Refused as error:
            raise StorageFailed(f"the store refuses a change of the metadata: {error}") from error
        except (
            CorruptChange,
            CorruptRegistration,
            CorruptWalObject,
            LogShortened,
            IncompatibleFormat,
        ) as error:
            self._end(f"the metadata of the cluster can't be read: {error}", error)

    async def _take(self, entry: Entry) -> None:
        try:
            records = []
            if isinstance(entry, StoredChange):
                records = [decode_record(record.value or b"") for record in iterate_records(entry.batch)]
            self._shared.take(entry)
        except (CorruptChange, UnknownRecordError, LogError) as error:
            self._end(f"the metadata of the cluster can't be read: {error}", error)
        if isinstance(entry, StoredChange):
            self._copy(entry)
            await self.folded.fold_in(records, entry.end_offset)
        sentence = self.ended_if(self.folded.image)
        if sentence is not None:
            self._note_end(sentence)

    def _copy(self, change: StoredChange) -> None:
        """Append the change to the local log, which takes it for durable: the bucket has it."""
        log = self._log
        if not self._is_copying:
            return
        try:
            log.append(change.batch, now_ms=self._clock.now_ms(), is_client=False)
            ticket = log.prepare_flush()
            if ticket is not None:
                self._durability.write_side_files(ticket, [])
                log.complete_flush(ticket)
            log.advance_high_watermark(log.log_end_offset)
        except (LogError, OSError) as error:
            self._is_copying = False
            logger.error(  # noqa: TRY400 - an expected failure of the disk
                "%s misses changes of the metadata from now on, and the next start makes it anew: %s",
                log.place,
                error,
            )

    def _note_end(self, sentence: str) -> None:
        """End the journal: the next call raises. The change that says so has been made, maybe here."""
        if not self.has_ended:
            self._ended.set_result(sentence)
            for ended in self.on_ended:
                ended(sentence)

    def _end(self, sentence: str, cause: Exception) -> NoReturn:
        self._note_end(sentence)
        raise StorageFailed(sentence) from cause
