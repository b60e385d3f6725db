"""`seqgate cluster status`: the content of a bucket, from listings and a few reads; or the gateways at an
address.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from seqgate.gateway.admin.cluster.bucket import Address, BucketTimeout, Settings, bucket_settings, in_bucket
from seqgate.gateway.admin.cluster.gateways import (
    Gateways,
    GatewaysRequest,
    gateways_of,
    gateways_remote,
    listing,
)
from seqgate.gateway.admin.commands import Output, asks, stop
from seqgate.gateway.admin.options import (
    CommandConfig,
    ConfigFile,
    OtherCluster,
    cluster,
    needs_bootstrap,
    nobody,
)
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.tables import Block, Column, Table, count, counted, moment, shown
from seqgate.gateway.admin.which_cluster import bootstrap_of

if TYPE_CHECKING:
    from seqgate.gateway.cluster.objects.objects import Entry, ObjectStore
    from seqgate.gateway.cluster.wal.sessions import RegisteredSession, SharedLogContent
    from seqgate.gateway.cluster.wal.wal_object import Seal

US_DOLLARS_PER_GIB_MONTH: Final = 0.023
"""S3 Standard in us-east-1, the first 50 TB. Source: https://aws.amazon.com/s3/pricing, "Storage"."""
ENDED_SHOWN: Final = 5
"""The most ended sessions in an answer; each costs one listing."""
MOST_IN_FLIGHT: Final = 64
"""The most objects that a session writes at once: behind its seal, or a missing object, there are no more."""


# What `seqgate cluster status --json` prints.


class LastSession(msgspec.Struct, frozen=True):
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


class EndedSessionRow(msgspec.Struct, frozen=True):
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
    last: LastSession
    partitions: int
    parts: Held
    wal: Held
    oldest_wal_ms: int | None
    last_upload_ms: int | None
    us_dollars_per_month: float
    metadata: Held = Held(0, 0)
    snapshots: list[int] = []
    changes_behind: int = 0
    ended: list[EndedSessionRow] = []
    """The last sessions that have ended, the newest first: clean stops, and gateways that were taken over."""
    gateways: Gateways | None = None
    """The gateways by the metadata; a crashed one is live until another takes over. None without any."""


# The command.


@asks(nobody)
def status(
    _: None,
    address: Address = None,
    settings: Settings = None,
    bootstrap: OtherCluster = None,
    command_config: CommandConfig = None,
    config_file: ConfigFile = None,
    timeout_s: BucketTimeout = None,
) -> Output:
    """Show what the bucket holds, what its storage costs, when it was last uploaded to, whether its last
    session has ended, and its gateways.

    The write-ahead logs shrink with each upload. An oldest object of more than twice
    `seqgate.cluster.upload.interval.ms` means that uploads fail: `seqgate status` shows why. Lists all
    objects: one request for each thousand. A gateway that has crashed is shown as live until another has
    taken over.

    With --bootstrap, asks the gateways instead: which of them are live, and how many partitions each leads.
    """
    if address is None and settings is None:
        bootstrap = bootstrap_of(bootstrap, None, config_file)
    if bootstrap is not None:
        if address is not None or settings is not None:
            raise stop("--cluster and --set name a bucket, --bootstrap gateways; give one of them", code=2)
        with cluster(bootstrap, command_config, None, config_file, timeout_s) as reached:
            found = gateways_remote(reached, GatewaysRequest())
        return Output(found, listing(found))
    needs_bootstrap(command_config)
    with bucket_settings(address, settings, config_file, timeout_s) as bucket:
        answer = in_bucket(bucket, cluster_state)
    return Output(answer, _text(answer))


def _text(answer: ClusterState) -> Iterator[Block]:
    """Yield what a bucket holds, and its gateways."""
    yield Table((Column("cluster"), Column("")), _rows(answer))
    if answer.gateways is not None:
        yield ""
        yield from listing(answer.gateways)


def _rows(answer: ClusterState) -> Iterator[tuple[str, str]]:
    last = answer.last
    yield "address", answer.address
    yield "cluster id", answer.cluster_id
    yield "sessions", count(answer.sessions)
    place = f"{last.session} of node {last.node_id} on {shown(last.host)}"
    yield "last session", f"{place}, since {moment(last.registered_ms)}"
    if last.ended is not None:
        yield "", f"ended: {shown(last.ended)}"
    elif last.last_object_ms is not None:
        yield "", f"runs, or has crashed; its last object is of {moment(last.last_object_ms)}"
    else:
        yield "", "has written nothing yet"
    for number, ended in enumerate(answer.ended):
        place = f"{ended.session} of node {ended.node_id} on {shown(ended.host)}"
        end = f"{moment(ended.ended_ms)}: {shown(ended.reason)}"
        yield "" if number else "ended session", f"{place}, {end}"
    yield "history", f"{counted(answer.partitions, 'partition')}, {_held_text(answer.parts)}"
    oldest = "" if answer.oldest_wal_ms is None else f", the oldest of {moment(answer.oldest_wal_ms)}"
    yield "write-ahead logs", _held_text(answer.wal) + oldest
    behind = f" behind the snapshot {count(answer.snapshots[-1])}" if answer.snapshots else ""
    start = f"a start reads {counted(answer.changes_behind, 'object')}{behind}"
    yield "metadata", f"{_held_text(answer.metadata)}; {start}"
    yield "last upload", "none yet" if answer.last_upload_ms is None else moment(answer.last_upload_ms)
    yield "storage", f"${answer.us_dollars_per_month:,.4f} a month, by Amazon's list for S3"


def _held_text(held: Held) -> str:
    return f"{counted(held.objects, 'object')}, {count(held.size_bytes)} bytes"


# The answer, from the bucket.


def check_is_cluster(found: SharedLogContent, address: str) -> None:
    """Check that the bucket has at least one session. Raises ControlError."""
    if not found.sessions:
        raise ControlError(f"{address} holds no cluster; check the address, its prefix included")


async def cluster_state(objects: ObjectStore, address: str) -> ClusterState:
    """Return what the bucket holds. Raises ControlError, StoreFailed, Refused, CorruptRegistration,
    CorruptChange, CorruptWalObject, IncompatibleFormat, UnknownRecordError.
    """
    from seqgate.gateway.cluster.metadata.shared_log import read_metadata  # noqa: PLC0415 - slow to import
    from seqgate.gateway.cluster.parts.manifest import PREFIX, partition_of  # noqa: PLC0415
    from seqgate.gateway.cluster.wal.ended import SessionState  # noqa: PLC0415
    from seqgate.gateway.cluster.wal.wal_object import SNAPSHOT_PREFIX  # noqa: PLC0415
    from seqgate.gateway.runtime.topics.stored_image import image_of, session_state  # noqa: PLC0415

    content = await read_metadata(objects)
    check_is_cluster(content, address)
    known, image = content.sessions, image_of(content)
    meta = [entry async for entry in objects.list("meta/")]
    parts = [entry async for entry in objects.list(PREFIX)]
    wal = [entry async for entry in objects.list("wal/")]
    size_bytes = sum(entry.size_bytes for entry in (*meta, *parts, *wal))
    places = [(entry, partition_of(entry.key)) for entry in parts]
    manifests = [entry for entry, place in places if place is not None and place[1] is None]
    ended = {each.session: await _ended(objects, each) for each in reversed(known[-ENDED_SHOWN:])}
    last = await _session(objects, known[-1], ended[known[-1].session])
    unsealed = {session for session, seal in ended.items() if seal is None}
    older = known[:-ENDED_SHOWN]  # nobody looks for their seals
    unsealed |= {each.session for each in older if session_state(image.brokers, each) is SessionState.RUNNING}
    return ClusterState(
        address=address,
        cluster_id=known[0].cluster_id,
        sessions=len(known),
        last=last,
        partitions=len(manifests),
        parts=_held(parts),
        wal=_held(wal),
        metadata=_held(meta),
        snapshots=[
            int(entry.key.removeprefix(SNAPSHOT_PREFIX))
            for entry in meta
            if entry.key.startswith(SNAPSHOT_PREFIX)
        ],
        changes_behind=content.end_seq - (0 if content.base is None else content.base.seq),
        oldest_wal_ms=_oldest(wal, unsealed),
        last_upload_ms=max((entry.modified_ms for entry in manifests), default=None),
        us_dollars_per_month=size_bytes / (1 << 30) * US_DOLLARS_PER_GIB_MONTH,
        ended=[seal for seal in ended.values() if seal is not None],
        gateways=gateways_of(image, known[0].cluster_id) if image.brokers.by_id else None,
    )


def _oldest(wal: Sequence[Entry], unsealed: Collection[int]) -> int | None:
    """Return when the oldest object of the write-ahead logs was written; None without one. The last object of
    each log is its seal, which stays for ever, but for the logs of the sessions `unsealed`.
    """
    logs: dict[str, list[Entry]] = {}
    for entry in wal:
        folder, _, name = entry.key.rpartition("/")
        if name.isdigit():
            logs.setdefault(folder, []).append(entry)
    objects = [
        entry
        for folder, entries in logs.items()
        for entry in (entries if int(folder.rpartition("/")[2]) in unsealed else entries[:-1])
    ]
    return min((entry.modified_ms for entry in objects), default=None)


def _held(entries: Sequence[Entry]) -> Held:
    return Held(len(entries), sum(entry.size_bytes for entry in entries))


async def _session(
    objects: ObjectStore, known: RegisteredSession, ended: EndedSessionRow | None
) -> LastSession:
    """Return what is known of a session. Its boundary tells of deleted objects: an upload may leave none."""
    from seqgate.gateway.cluster.wal.wal_object import boundary_key  # noqa: PLC0415 - slow to import

    folder = boundary_key(known.node_id, known.session).removesuffix("boundary")
    listed = [entry async for entry in objects.list(folder)]
    newest = ([entry for entry in listed if not entry.key.endswith("/boundary")] or listed)[-1:]
    return LastSession(
        session=known.session,
        node_id=known.node_id,
        host=known.host,
        release=known.release,
        registered_ms=known.registered_ms,
        last_object_ms=newest[0].modified_ms if newest else None,
        ended=None if ended is None else ended.reason,
    )


async def _ended(objects: ObjectStore, known: RegisteredSession) -> EndedSessionRow | None:
    """Return how the session has ended; None while it has no seal. Raises StoreFailed, Refused,
    CorruptWalObject, IncompatibleFormat.
    """
    from seqgate.gateway.cluster.wal.wal_object import boundary_key  # noqa: PLC0415 - slow to import

    folder = boundary_key(known.node_id, known.session).removesuffix("boundary")
    entries = [entry async for entry in objects.list(folder) if not entry.key.endswith("/boundary")]
    for entry in reversed(entries[-MOST_IN_FLIGHT - 1 :]):
        seal = await seal_at(objects, known, int(entry.key.removeprefix(folder)))
        if seal is not None:
            return EndedSessionRow(
                known.session, known.node_id, known.host, seal.by, seal.reason, entry.modified_ms
            )
    return None


async def seal_at(objects: ObjectStore, known: RegisteredSession, seq: int) -> Seal | None:
    """Return the seal at this place of the session's log, or None. Raises StoreFailed, Refused,
    CorruptWalObject, IncompatibleFormat.
    """
    from seqgate.gateway.cluster.objects.objects import Missing  # noqa: PLC0415 - slow to import
    from seqgate.gateway.cluster.wal.wal_object import END_BYTES, Seal, decode_index, identify, object_key  # noqa: PLC0415

    key = object_key(known.node_id, known.session, seq)
    try:
        end = await objects.get_end(key, END_BYTES)
    except Missing:
        return None  # a running gateway has deleted it since the listing
    if not identify(end, key).is_seal:
        return None
    seal = decode_index(end, key)
    assert isinstance(seal, Seal)
    return seal
