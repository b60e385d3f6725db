"""Limits that all clients share, so that none of them can take the gateway's memory."""

from __future__ import annotations

from functools import partial

from gateway.config.setting import whole_number

_SECTION = "Limits that all clients share"
_number = partial(whole_number, _SECTION)

SHARED_LIMIT_SETTINGS = (
    _number(
        "seqgate.response.backlog.max.bytes",
        268_435_456,
        "Bytes of answers that all connections together may leave unread, those with less than "
        "`seqgate.connection.response.backlog.bytes` not counted. Beyond it the connection with the most unread is dropped.",
        dynamic=True,
    ),
    _number(
        "seqgate.fetch.session.max.partitions",
        1_000_000,
        "Partitions that all fetch sessions together, and all share sessions, may hold, unknown ones included. Further fetch "
        "sessions are not made, and a session that wants more is ended (FETCH_SESSION_ID_NOT_FOUND), so that the consumer "
        "sends whole requests; a share session that wants more is refused with SHARE_SESSION_LIMIT_REACHED.",
        dynamic=True,
    ),
    _number(
        "seqgate.group.members.max.bytes",
        67_108_864,
        "Bytes that the members of the groups of each partition of `__consumer_offsets` may hold: what they tell of "
        "themselves, what they are assigned, and 1,000 for each. Who would join beyond it is refused with "
        "GROUP_MAX_SIZE_REACHED.",
        dynamic=True,
    ),
    _number(
        "seqgate.group.offsets.max",
        1_000_000,
        "Offsets that each partition of `__consumer_offsets` may hold, those of open transactions included; a commit of "
        "further ones is refused with INVALID_COMMIT_OFFSET_SIZE, one that replaces others is not.",
        dynamic=True,
    ),
)
