"""The identity of a data directory, in `meta.properties`: the node that it belongs to, and its cluster.

Source: Kafka's `MetaProperties`.
"""

from __future__ import annotations

import base64
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple

from log.directory.directory_files import LOCK, WORKERS, check_versions
from log.errors import IncompatibleFormat
from log.files.file_names import TEMPORARY_SUFFIX
from log.files.versions import DIRECTORY_VERSION, META, WORKERS_VERSION, read_properties

if TYPE_CHECKING:
    from log.files.durable_files import DurableFiles
    from log.files.storage import Storage


_BEFORE_META: Final = frozenset({LOCK, META + TEMPORARY_SUFFIX, "lost+found"})
"""The names in a directory whose first start ended before `meta.properties` was durable, and that of a new file system."""


class Identity(NamedTuple):
    """The ids of a data directory, in Kafka's base64 form."""

    cluster_id: str
    directory_id: str


def check_ownership(storage: Storage, root: str) -> None:
    """Check that the directory is missing, empty, or a gateway's: one that has `meta.properties`. Raises IncompatibleFormat, OSError.

    A sweep would take the files of others for orphaned ones.
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
    """Check that the directory is missing, or has no files but those of a first start. Raises IncompatibleFormat, OSError."""
    if not storage.exists(root):
        return
    others = sorted(set(storage.list_directory(root)) - _BEFORE_META)
    if others:
        raise IncompatibleFormat(f"it holds {others[0]!r}")


def take_identity(storage: Storage, durable: DurableFiles, root: str, node_id: int) -> Identity:
    """Return the identity of a data directory, a fresh one for a new directory. Raises OSError.

    Raises IncompatibleFormat, before changing any file, if the directory belongs to another node or to a later release.
    """
    path = f"{root}/{META}"
    if not storage.exists(path):
        identity = Identity(fresh_id(), fresh_id())
        write_identity(durable, root, node_id, identity)
        return identity
    fields = read_properties(storage, path)
    if fields.get("node.id") != str(node_id):
        raise IncompatibleFormat(
            f"The data in {root} belongs to node.id {fields.get('node.id')}, this gateway is node.id {node_id}."
        )
    identity = Identity(fields.get("cluster.id", ""), fields.get("directory.id", ""))
    check_versions(storage, root)
    version = WORKERS_VERSION if storage.exists(f"{root}/{WORKERS}") else DIRECTORY_VERSION
    if int(fields["version"]) != version:
        # Raise the version before writing a file that an earlier release can't read.
        write_identity(durable, root, node_id, identity, version)
    return identity


def write_version(storage: Storage, durable: DurableFiles, root: str, version: int) -> None:
    """Persist another version of the formats. Raises OSError, IncompatibleFormat."""
    fields = read_properties(storage, f"{root}/{META}")
    identity = Identity(fields.get("cluster.id", ""), fields.get("directory.id", ""))
    write_identity(durable, root, int(fields["node.id"]), identity, version)


def write_identity(
    durable: DurableFiles, root: str, node_id: int, identity: Identity, version: int = DIRECTORY_VERSION
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
    """Return a random id in Kafka's base64 form, never with a leading dash, which would look like an option."""
    text = "-"
    while text.startswith("-"):
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return text
