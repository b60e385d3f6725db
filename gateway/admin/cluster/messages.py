"""The JSON output of `seqgate cluster`: what a bucket holds, and what of it is damaged."""

from __future__ import annotations

from typing import Annotated

import msgspec

from seqgate.gateway.admin.gateways.messages import Gateways
from seqgate.gateway.admin.tables import Column


class SessionState(msgspec.Struct, frozen=True):
    """The last session of a cluster. `ended` is the reason in its seal; None while the session runs, and
    after a crash.

    `last_object_ms` is the time of its newest object, or that of its boundary when uploads have deleted all
    objects; None for a session that has written nothing.
    """

    session: int
    node_id: int
    host: str
    release: str
    registered_ms: int
    last_object_ms: int | None
    ended: str | None


class EndedSession(msgspec.Struct, frozen=True):
    """A session that has ended: `reason` is in its seal, which `by` wrote at `ended_ms`."""

    session: int
    node_id: int
    host: str
    by: int
    reason: str
    ended_ms: int


class Held(msgspec.Struct, frozen=True):
    """Objects of one kind."""

    objects: int
    size_bytes: int


class ClusterState(msgspec.Struct, frozen=True):
    """The content of a bucket.

    `oldest_wal_ms` is the time of the oldest object of the write-ahead logs, and `last_upload_ms` that of the
    newest manifest; None without one. `metadata` is all of `meta/`; `snapshots` are the numbers of the
    snapshots there, and `changes_behind` is how many objects a start reads besides the newest sound one.
    `us_dollars_per_month` is the price of the storage by Amazon's list for S3 Standard in us-east-1.
    """

    address: str
    cluster_id: str
    sessions: int
    last: SessionState
    partitions: int
    parts: Held
    wal: Held
    oldest_wal_ms: int | None
    last_upload_ms: int | None
    us_dollars_per_month: float
    metadata: Held = Held(0, 0)
    snapshots: list[int] = []
    changes_behind: int = 0
    ended: list[EndedSession] = []
    """The last sessions that have ended, the newest first: clean stops, and gateways that were taken over."""
    gateways: Gateways | None = None
    """The gateways by the metadata; a crashed one is live until another takes over. None without any."""


class DamagedObject(msgspec.Struct, frozen=True):
    """An object that is missing or damaged."""

    key: Annotated[str, Column("object")]
    reason: str

    @property
    def damage(self) -> Annotated[str, Column("damage")]:
        """The reason without the object key at its front, which has a column of its own."""
        return self.reason.removeprefix(self.key).lstrip(": ")


class Verification(msgspec.Struct, frozen=True):
    """What was read, and what of it is damaged. `unnamed` counts objects that no manifest names: what a crash
    left, or what a running gateway is about to delete.
    """

    address: str
    partitions: int
    parts: int
    wal_objects: int
    size_bytes: int
    unnamed: int
    damaged: list[DamagedObject]


class Imported(msgspec.Struct, frozen=True):
    """A data directory that is in a bucket now. `us_dollars` is the requests' price by Amazon's list."""

    address: str
    data_dir: str
    cluster_id: str
    partitions: int
    parts: int
    size_bytes: int
    us_dollars: float
