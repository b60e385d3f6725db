"""Validates topic names (Kafka's org.apache.kafka.common.internals.Topic)."""

from __future__ import annotations

import re
from typing import Final

MAX_NAME_LENGTH: Final = 249
METADATA_TOPIC: Final = "__cluster_metadata"
OFFSETS_TOPIC: Final = "__consumer_offsets"
SHARE_STATE_TOPIC: Final = "__share_group_state"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
#: The topics that clients see marked as internal.
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC})

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def name_complaint(name: str) -> str | None:
    """Return why a topic can't have this name, or None when it can."""
    if not name:
        return "Topic name is invalid: it is empty"
    if name in (".", ".."):
        return f"Topic name is invalid: {name!r} is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return (
            f"Topic name is invalid: it has {len(name)} characters, more than the {MAX_NAME_LENGTH} allowed"
        )
    if not _LEGAL.fullmatch(name):
        return f"Topic name is invalid: {name!r} has other characters than ASCII letters, digits, '.', '_' and '-'"
    return None


def has_collision_characters(name: str) -> bool:
    """Return whether the name has a '.' or '_', which metric names can't tell apart."""
    return "." in name or "_" in name


def unify_collision_characters(name: str) -> str:
    """Return the name with every '.' replaced by '_'."""
    return name.replace(".", "_")
