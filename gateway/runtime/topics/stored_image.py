"""The metadata of a cluster as its bucket has it, for a start without an image and for offline commands."""

from __future__ import annotations

from seqgate.gateway.cluster.metadata.shared_log import metadata_batches
from seqgate.gateway.cluster.wal.sessions import SharedLogContent
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.records import decode_record
from seqgate.log.format.records import iterate_records


def image_of(known: SharedLogContent) -> MetadataImage:
    """Return the shared metadata. Raises CorruptChange, UnknownRecordError, IncompatibleFormat."""
    image = MetadataImage()
    for batch in metadata_batches(known):
        for record in iterate_records(batch):
            image.replay(decode_record(record.value or b""))
    return image
