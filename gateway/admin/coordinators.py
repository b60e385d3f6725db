"""The offline partitions of a coordinator, and its errors as sentences, for every operation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.partitions.registry import Partitions


def offline_partitions(partitions: Partitions, topic: str) -> list[int]:
    """Return the partitions of a coordinator's topic that are out of service."""
    found = partitions.by_name.get(topic)
    return [] if found is None else [entry.index for entry in found.opened() if entry.log.offline]


@contextlib.contextmanager
def as_control_error(what: str, topic: str) -> Iterator[None]:
    """Turn Unavailable into ControlError; the coordinator of `what` stores its state in `topic`."""
    try:
        yield
    except Unavailable as error:
        raise ControlError(
            f"the coordinator of {what} can't answer now ({error.error_code.name}); "
            f"`seqgate status` shows whether a partition of {topic} is offline"
        ) from error
