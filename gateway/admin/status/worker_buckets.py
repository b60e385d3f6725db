"""The bucket of several workers, each of which has a cache and a write-ahead log, as that of one gateway."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from gateway.admin.every_worker import summed
from gateway.admin.status.messages import BucketState
from gateway.cluster.uploads.progress import UploadProgress

_SUMMED: Final = (
    "puts",
    "gets",
    "lists",
    "deletes",
    "bytes_up",
    "bytes_down",
    "failures",
    "us_dollars",
    "unwritten_bytes",
    "unwritten_max_bytes",
)


def joined_bucket(states: Sequence[BucketState | None]) -> BucketState | None:
    """Return one state: counts and limits are summed, and of the uploads the worst is told. None where no worker has a bucket."""
    known = [state for state in states if state is not None]
    if not known:
        return None
    replica_bytes = [state.replica_bytes for state in known if state.replica_bytes is not None]
    caches = [state.cache for state in known if state.cache is not None]
    return msgspec.structs.replace(
        known[0],
        **{name: summed([getattr(state, name) for state in known]) for name in _SUMMED},
        is_behind=any(state.is_behind for state in known),
        cache=summed(caches) if caches else None,
        replica_bytes=sum(replica_bytes) if replica_bytes else None,
        uploads=_joined_uploads([state.uploads for state in known if state.uploads is not None]),
    )


def _joined_uploads(uploads: Sequence[UploadProgress]) -> UploadProgress | None:
    if not uploads:
        return None
    ended = [each.round_ended_ms_ago for each in uploads]
    return UploadProgress(
        wal_objects=sum(each.wal_objects for each in uploads),
        wal_bytes=sum(each.wal_bytes for each in uploads),
        oldest_ms=_most(each.oldest_ms for each in uploads),
        round_ended_ms_ago=None if None in ended else _most(ended),
        round_took_ms=max(each.round_took_ms for each in uploads),
        error=next((each.error for each in uploads if each.error is not None), None),
        running_ms=_most(each.running_ms for each in uploads),
    )


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
