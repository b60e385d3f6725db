from __future__ import annotations

import pytest

from seqgate.gateway.cluster.wal.ended import SessionState
from seqgate.gateway.cluster.wal.sessions import RegisteredSession
from seqgate.gateway.handlers.admin.brokers import unregister_broker
from seqgate.gateway.metadata.membership import end_session, register_broker
from seqgate.gateway.runtime.topics.stored_image import session_state
from tests.gateway.metadata.clusters import broker, carry_out, cluster

VERSION = 3


def registered(session: int, node_id: int, version: int = VERSION) -> RegisteredSession:
    return RegisteredSession(session, node_id, bytes(16), "cluster", version, 0, "host", "0.1.0")


@pytest.mark.parametrize(
    ("session", "expected"),
    [
        (registered(1, 1), SessionState.ENDED),  # a later session of the node is a broker
        (registered(2, 2), SessionState.RUNNING),
        (registered(3, 3), SessionState.ENDED),  # fenced
        (registered(4, 4), SessionState.ENDED),  # removed
        (registered(6, 1), SessionState.RUNNING),
        (registered(5, 1), SessionState.ENDED),  # its start failed, and a later one sealed it
        (registered(7, 1), SessionState.NO_BROKER),
        (registered(8, 9), SessionState.NO_BROKER),
        (registered(0, 9, VERSION - 1), SessionState.ENDED),
    ],
)
def test_the_metadata_tells_what_became_of_a_session(
    session: RegisteredSession, expected: SessionState
) -> None:
    image = cluster([1, 2, 3, 4])
    for node_id in (3, 4):
        carry_out(image, end_session(image, node_id, node_id))
    carry_out(image, unregister_broker(image, 4))
    carry_out(image, register_broker(image, broker(1, 6)))
    assert session_state(image.brokers, session) is expected
