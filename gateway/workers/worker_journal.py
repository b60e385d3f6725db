"""The metadata journal of a worker: the process that supervises it has the log, and tells every worker each durable change."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.metadata.image import MetadataImage, TopicImage
from gateway.metadata.records import MetadataRecord, RemoveTopicRecord, decode_record, encode_record
from gateway.runtime.topics.metadata_log import FoldedImage
from gateway.workers.link import SupervisorLink
from log import StorageFailed


class WorkerJournal:
    """The image of the metadata at the worker's start, and all changes since."""

    def __init__(self, link: SupervisorLink, image: MetadataImage, end_offset: int) -> None:
        """Take the image up to `end_offset`; the link has the changes after it."""
        self.folded = FoldedImage(None, image, end_offset)
        self.when_removed: Callable[[list[TopicImage]], None] = lambda _: None
        """Called with the topics that a change has removed, after the listeners, also if one has failed."""
        self._link = link

    async def catch_up(self) -> None:
        """Fold in the changes that came, in the order of the log."""
        changes = self._link.changes
        while changes:
            change = changes.popleft()
            records = [decode_record(record) for record in change.records]
            topics = self.folded.image.topics_by_id
            ids = [record.topic_id for record in records if isinstance(record, RemoveTopicRecord)]
            removed = [topics[topic_id] for topic_id in ids if topic_id in topics]
            try:
                await self.folded.fold_in(records, change.end_offset)
            finally:
                if removed:
                    self.when_removed(removed)

    async def commit(self, records: Sequence[MetadataRecord]) -> bool:
        """Have the supervisor append the records right behind those of the image, and fold them in. Raises StorageFailed."""
        refused = await self._link.commit(
            self.folded.end_offset, [encode_record(record) for record in records]
        )
        await self.catch_up()
        if refused is not None and refused.error is not None:
            raise StorageFailed(refused.error)
        return refused is None
