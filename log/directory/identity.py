"""The identity of a data directory, in `meta.properties`: the node that it belongs to, and its cluster.

Source: Kafka's `MetaProperties`.

Removes damaged batches from the logs of a data directory that no gateway has open: nothing else does.

The repair rewrites a segment without its damaged batches, and replaces the old file by one rename. The other
batches keep their offsets. The offsets of the damaged batches are missing afterwards, as after compaction.
"""

from __future__ import annotations

import base64
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple

from seqgate.log.directory.stored_logs import BUCKET_SESSION, LOCK, WORKERS, check_versions
from seqgate.log.environment import LogEnvironment
from seqgate.log.errors import IncompatibleFormat
from seqgate.log.files.file_names import LOG_SUFFIX, TEMPORARY_SUFFIX, offset_name, offsets_of
from seqgate.log.files.sparse_disk import DIRECTORY_VERSION, META, WORKERS_VERSION, read_properties
from seqgate.log.files.storage import DataFile, DurableFiles, Storage
from seqgate.log.segments.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seqgate.log.directory.damage_scan import DamagedPartition
    from seqgate.log.segments.damage import DamagedRange


OF_A_FILE_SYSTEM: Final = "lost+found"
"""The directory that fsck keeps at the root of a file system."""
_BEFORE_META: Final = frozenset(
    {LOCK, META + TEMPORARY_SUFFIX, BUCKET_SESSION + TEMPORARY_SUFFIX, OF_A_FILE_SYSTEM}
)
"""The names in a directory before `meta.properties` is durable, and that of a new file system."""


class DirectoryIdentity(NamedTuple):
    """The ids of a data directory, in Kafka's base64 form."""

    cluster_id: str
    directory_id: str


def check_ownership(storage: Storage, root: str) -> None:
    """Check that the directory is missing, empty, or a gateway's. A sweep would take the files of others for
    orphaned ones. Raises IncompatibleFormat, OSError.
    """
    if not storage.exists(root) or storage.exists(f"{root}/{META}"):
        return
    others = sorted(set(storage.list_directory(root)) - _BEFORE_META)
    if others:
        raise IncompatibleFormat(
            f"it holds {others[0]!r} and no {META}, so it is no data directory of a gateway; "
            f"name an empty or a new directory, or put {META} back"
        )


def check_empty(storage: Storage, root: str) -> None:
    """Check that the directory is missing or as first starts leave it. Raises IncompatibleFormat, OSError."""
    if not storage.exists(root):
        return
    others = sorted(set(storage.list_directory(root)) - _BEFORE_META)
    if others:
        raise IncompatibleFormat(f"it holds {others[0]!r}")


def take_identity(storage: Storage, durable: DurableFiles, root: str, node_id: int) -> DirectoryIdentity:
    """Return the identity of a data directory, a fresh one for a new directory. Raises OSError, and,
    before changing any file, IncompatibleFormat if it belongs to another node or release.
    """
    path = f"{root}/{META}"
    if not storage.exists(path):
        identity = DirectoryIdentity(fresh_id(), fresh_id())
        write_identity(durable, root, node_id, identity)
        return identity
    check_identity(storage, root, node_id)
    fields = read_properties(storage, path)
    identity = DirectoryIdentity(fields.get("cluster.id", ""), fields.get("directory.id", ""))
    version = WORKERS_VERSION if storage.exists(f"{root}/{WORKERS}") else DIRECTORY_VERSION
    if int(fields["version"]) != version:
        # Raise the version before writing a file that an earlier release can't read.
        write_identity(durable, root, node_id, identity, version)
    return identity


def check_identity(storage: Storage, root: str, node_id: int) -> None:
    """Check that a gateway of this node and release can open the directory, or begin one. Raises OSError,
    IncompatibleFormat.
    """
    check_ownership(storage, root)
    path = f"{root}/{META}"
    if not storage.exists(path):
        return
    found = read_properties(storage, path).get("node.id")
    if found != str(node_id):
        raise IncompatibleFormat(
            f"The data in {root} belongs to node.id {found}, this gateway is node.id {node_id}."
        )
    check_versions(storage, root)


def write_version(storage: Storage, durable: DurableFiles, root: str, version: int) -> None:
    """Persist another version of the formats. Raises OSError, IncompatibleFormat."""
    fields = read_properties(storage, f"{root}/{META}")
    identity = DirectoryIdentity(fields.get("cluster.id", ""), fields.get("directory.id", ""))
    write_identity(durable, root, int(fields["node.id"]), identity, version)


def write_identity(
    durable: DurableFiles,
    root: str,
    node_id: int,
    identity: DirectoryIdentity,
    version: int = DIRECTORY_VERSION,
) -> None:
    """Persist the identity of a data directory, with the version of its formats. Raises OSError."""
    lines = (
        f"version={version}",
        f"cluster.id={identity.cluster_id}",
        f"node.id={node_id}",
        f"directory.id={identity.directory_id}",
        "",
    )
    durable.replace(f"{root}/{META}", "\n".join(lines).encode())


def fresh_id() -> str:
    """Return a random id in Kafka's base64 form, without a leading dash, which looks like an option."""
    text = "-"
    while text.startswith("-"):
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return text


def give_up(storage: Storage, root: str, partition: DamagedPartition, now_ms: int) -> None:
    """Remove the damaged ranges from a partition, durably. Raises OSError.

    A crash leaves each segment as it was, or already without its damaged ranges. The data directory must be
    locked and cleanly stopped, so that all data behind the damage is durable.
    """
    directory = f"{root}/{partition.name}"
    environment = LogEnvironment(storage)
    register = environment.damage
    register.load(storage, environment.durability, root)
    # Clear the register first: its positions do not fit the new files.
    register.note(directory, (), is_durable=True)
    for base_offset in sorted({found.segment_base_offset for found in partition.ranges}):
        ranges = [found for found in partition.ranges if found.segment_base_offset == base_offset]
        _rewrite(environment, directory, base_offset, ranges, now_ms)
    _end_behind(storage, directory, partition)
    environment.durability.sync(directories=[directory])


def _rewrite(
    environment: LogEnvironment, directory: str, base_offset: int, ranges: Sequence[DamagedRange], now_ms: int
) -> None:
    storage, durability = environment.storage, environment.durability
    path = f"{directory}/{offset_name(base_offset, LOG_SUFFIX)}"
    size_bytes = storage.size_bytes(path)
    old, new = DataFile(path), DataFile(path + TEMPORARY_SUFFIX)
    storage.delete(new.path)
    storage.create(new)
    written = 0
    try:
        for start, end in _kept(ranges, size_bytes):
            written = storage.copy(old, start, end, new, written)
        with storage.descriptors.pinned(new):
            durability.sync(data=[new])
    finally:
        storage.descriptors.release(old)
        storage.descriptors.release(new)
    storage.rename(new.path, path)
    durability.sync(directories=[directory])
    segment = Segment(environment, directory, base_offset, written, now_ms)
    if written:
        segment.rebuild_indexes()
        environment.rebuilt_indexes.write(durability)
    else:
        durability.sync(paths=segment.write_indexes())


def _kept(ranges: Sequence[DamagedRange], size_bytes: int) -> list[tuple[int, int]]:
    """Return (start, end) of the bytes of a file that are in none of the ranges."""
    starts = [0, *(found.position + found.size_bytes for found in ranges)]
    ends = [*(found.position for found in ranges), size_bytes]
    return list(zip(starts, ends, strict=True))


def _end_behind(storage: Storage, directory: str, partition: DamagedPartition) -> None:
    """Begin an empty segment at the end of a log that ended in damage, so that its last offsets stay used."""
    last = partition.ranges[-1]
    bases = offsets_of(storage.list_files(directory), LOG_SUFFIX)
    if last.end_offset >= partition.durable_end_offset > bases[-1]:
        file = DataFile(f"{directory}/{offset_name(partition.durable_end_offset, LOG_SUFFIX)}")
        storage.create(file)
        storage.descriptors.release(file)
