"""Group ids that stand for producer names, so that every client can ask for a name's last sequence id.

    seqgate-name:<name>   its committed offset is the last persisted sequence id of the producer name

This works on topics with `message.deduplication.enable`. No client can join such a group or commit to it. A client
can't ask for a name that is not UTF-8 in this way.
"""

from __future__ import annotations

from typing import Final

NAME_GROUP_PREFIX: Final = "seqgate-name:"


def is_name_group(group_id: str) -> bool:
    """Return whether a group id stands for a producer name; no real group has such an id."""
    return group_id.startswith(NAME_GROUP_PREFIX)


def producer_name(group_id: str) -> bytes | None:
    """Return the producer name that a group id stands for; None for the id of a real group."""
    if not is_name_group(group_id):
        return None
    return group_id[len(NAME_GROUP_PREFIX) :].encode("utf-8", "surrogatepass")
