"""What the metadata says about the sessions of the cluster: which run, and which have ended."""

from __future__ import annotations

from gateway.cluster.wal.ended import SessionState
from gateway.cluster.wal.sessions import RegisteredSession
from gateway.metadata.brokers import StoredBrokers


def session_state(
    brokers: StoredBrokers, session: RegisteredSession, first_with_brokers: int
) -> SessionState:
    """Return whether a session runs as a broker, has ended, or is none.

    A start seals all earlier sessions of its node, so a session has ended once a later one of its node is a broker. Sessions of releases before the
    cluster version `first_with_brokers` never became brokers; the first start of a later release has sealed them.
    """
    broker = brokers.by_id.get(session.node_id)
    if session.session in brokers.ended or session.cluster_version < first_with_brokers:
        return SessionState.ENDED
    if broker is None or broker.broker_epoch < session.session:
        return SessionState.NO_BROKER
    if broker.broker_epoch > session.session or broker.fenced:
        return SessionState.ENDED
    return SessionState.RUNNING
