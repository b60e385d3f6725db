"""Limits that all clients share, so that no client can use up the gateway's memory."""

from __future__ import annotations

from functools import partial

from gateway.config.setting import whole_number

_SECTION = "Limits that all clients share"
_number = partial(whole_number, _SECTION)

SHARED_LIMIT_SETTINGS = (
    _number(
        "seqgate.response.backlog.max.bytes",
        268_435_456,
        "Bytes of unread answers over all connections. A connection counts when its unread answers exceed "
        "`seqgate.connection.response.backlog.bytes`. Beyond the limit the connection with the most unread bytes is closed.",
        dynamic=True,
    ),
    _number(
        "seqgate.fetch.session.max.partitions",
        1_000_000,
        "Partitions in all fetch sessions together, and the same number again in all share sessions, unknown partitions "
        "included. Beyond the limit no fetch session begins, and a fetch session that adds partitions is ended "
        "(FETCH_SESSION_ID_NOT_FOUND); the consumer then sends full requests. A share session that adds partitions is "
        "refused with SHARE_SESSION_LIMIT_REACHED.",
        dynamic=True,
    ),
    _number(
        "seqgate.group.members.max.bytes",
        67_108_864,
        "Bytes of the members of all groups in one partition of `__consumer_offsets`: their metadata, their assignments, and "
        "1,000 bytes for each member. Beyond the limit a new member is refused with GROUP_MAX_SIZE_REACHED.",
        dynamic=True,
    ),
    _number(
        "seqgate.group.offsets.max",
        1_000_000,
        "Committed offsets in one partition of `__consumer_offsets`, pending offsets of open transactions included. Beyond the "
        "limit a commit that adds offsets is refused with INVALID_COMMIT_OFFSET_SIZE; a commit that replaces offsets is "
        "accepted.",
        dynamic=True,
    ),
)
