"""The metadata of a cluster as its bucket has it, for a start without an image and for offline commands."""

from __future__ import annotations

from typing import Final

from seqgate.gateway.cluster.metadata.shared_log import metadata_batches
from seqgate.gateway.cluster.wal.ended import SessionState
from seqgate.gateway.cluster.wal.sessions import RegisteredSession, SharedLogContent
from seqgate.gateway.metadata.brokers import StoredBrokers
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


FIRST_WITH_BROKERS: Final = 3
"""The first version of the cluster's formats whose sessions become brokers."""


def session_state(brokers: StoredBrokers, session: RegisteredSession) -> SessionState:
    """Return whether a session runs as a broker, has ended, or is none.

    A start seals all earlier sessions of its node, so a session has ended once a later one of its node is a
    broker. Sessions of releases before the cluster version FIRST_WITH_BROKERS never became brokers; the first
    start of a later release has sealed them.
    """
    broker = brokers.by_id.get(session.node_id)
    if session.session in brokers.ended or session.cluster_version < FIRST_WITH_BROKERS:
        return SessionState.ENDED
    if broker is None or broker.broker_epoch < session.session:
        return SessionState.NO_BROKER
    if broker.broker_epoch > session.session or broker.fenced:
        return SessionState.ENDED
    return SessionState.RUNNING
