"""Group ids that stand for producer names: a topic with `message.deduplication.enable` remembers how far a name has come.

    seqgate-name:<name>   the last persisted sequence id of the producer name, as if a group had committed it

So every client can ask for it as it asks for committed offsets. Nobody joins such a group nor commits to it. Names that
are not UTF-8 can't be asked for in this way.
"""

from __future__ import annotations

from typing import Final

NAME_GROUP_PREFIX: Final = "seqgate-name:"


def is_name_group(group_id: str) -> bool:
    """Whether a group id stands for a producer name, so that there is no such group."""
    return group_id.startswith(NAME_GROUP_PREFIX)


def producer_name(group_id: str) -> bytes | None:
    """The producer name that a group id stands for; None of a group's own."""
    if not is_name_group(group_id):
        return None
    return group_id[len(NAME_GROUP_PREFIX) :].encode("utf-8", "surrogatepass")
