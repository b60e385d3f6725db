"""Makes the data directory of a gateway from its bucket: the metadata first, then all that it names."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from gateway.cluster.metadata.change import decode_change
from gateway.cluster.metadata.shared_log import SharedLog, copy_log, is_copied
from gateway.cluster.objects.objects import ObjectStore
from gateway.cluster.parts.manifest import PartitionKey
from gateway.cluster.rebuild.rebuild import MetadataPlace, Rebuilt, StoredTopic, rebuild, write_metadata
from gateway.cluster.wal.ended import SealedWal, WalRange
from gateway.cluster.wal.sessions import RegisteredSession, Session, SharedLogContent
from gateway.metadata.image import MetadataImage
from gateway.metadata.records import decode_record
from gateway.metadata.topic_names import METADATA_TOPIC
from gateway.runtime.topics.metadata_log import METADATA_TOPIC_ID
from log import Durability, Storage
from log.format.records import iterate_records
from log.rebuilding import RebuiltDirectory
from log.stopped import stored_batches

logger = logging.getLogger(__name__)

METADATA: Final = MetadataPlace(METADATA_TOPIC_ID, METADATA_TOPIC)


async def rebuild_directory(
    objects: ObjectStore,
    storage: Storage,
    path: Path,
    local_session: bytes,
    session: Session,
    known: SharedLogContent,
    sealed: Sequence[tuple[RegisteredSession, SealedWal]],
    durability: Durability,
    wanted: Collection[PartitionKey] | None = None,
) -> tuple[Rebuilt, SharedLog]:
    """Make the directory anew; return what was read, and the shared metadata log behind what the directory has of it.

    `known` is all of `meta/`, or a snapshot and what is behind it, read after the logs in `sealed` had ended. Where an older release kept the metadata in write-ahead
    logs and parts, the metadata is copied into the shared log, before anything else is written. Raises CorruptChange and as `rebuild`.
    """
    begun_s = time.monotonic()
    ranges = [
        WalRange(ended.node_id, ended.session, ended.nonce, log.first_seq, log.end_seq)
        for ended, log in sealed
    ]
    changes = [decode_change(content, seq) for seq, content in known.changes]
    directory = RebuiltDirectory.begin(storage, path, local_session)
    try:
        is_whole = is_copied(known)
        end_offset = write_metadata(directory, METADATA, changes, known.base) if is_whole else 0
        rebuilt = await rebuild(objects, ranges, directory, METADATA, partial(_read_topics, storage), wanted)
        directory.finish(durability, session.cluster_id, session.node_id)
    except BaseException:
        directory.abandon()
        raise
    if not is_whole:
        end_offset = changes[-1].end_offset if changes else 0
    shared = SharedLog(objects, session, next_seq=known.end_seq, next_offset=end_offset)
    if not is_whole:
        logger.info("the metadata of the cluster, which an older release has written, is copied to meta/")
        place = path / f"{METADATA_TOPIC}-0"
        await copy_log(shared, stored_batches(storage, place) if storage.exists(str(place)) else ())
    logger.info(
        "%s: rebuilt from the bucket: sessions %d, objects %d, bytes %d, partitions %d, in %.2f s",
        path,
        len(ranges),
        *rebuilt[:3],
        time.monotonic() - begun_s,
    )
    return rebuilt, shared


def _read_topics(storage: Storage, directory: Path) -> Mapping[uuid.UUID, StoredTopic]:
    image = MetadataImage()
    for _, batch in stored_batches(storage, directory):
        for record in iterate_records(batch):
            image.replay(decode_record(record.value or b""))
    return {
        topic_id: StoredTopic(topic.name, len(topic.partitions))
        for topic_id, topic in image.topics_by_id.items()
    }
