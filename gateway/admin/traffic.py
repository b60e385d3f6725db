"""The counts of a gateway's listeners and of its bucket, for `seqgate status`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from seqgate.gateway.cluster.cache.cache_state import CacheState
    from seqgate.gateway.cluster.objects.objects import Counts


class Traffic(NamedTuple):
    """The counts of the listeners: connections now, and refused connections, requests and failed logins since
    the start.

    `calls` are those to the bucket that holds the records, `cache` are the counts of its local cache; None
    without a bucket.
    """

    connections: int = 0
    refused_connections: int = 0
    requests: int = 0
    failed_logins: int = 0
    calls: Counts | None = None
    cache: CacheState | None = None
