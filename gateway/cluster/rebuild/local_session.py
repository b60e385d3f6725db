"""The file that says whose cache a data directory is: `bucket-session`, JSON.

    version          of this content
    address          of the bucket
    cluster_id       of the cluster in the bucket
    session          the session that used the directory last
    wal_end          the seq of the seal after a clean stop; null while the gateway runs and after a crash
    metadata_seq     the first object of `meta/` that the directory lacks; null as `wal_end`
    metadata_offset  the offset of that object; null as `wal_end`
    earlier          the nonces of sessions that died on the directory before they joined the cluster, of one
                     that is about to register, and of the one before them if the metadata still shows it

The gateway that has the lock of the directory knows by it that all these sessions are dead, and keeps their
node id.

After a clean stop the files are all that the bucket has, so the next start reuses them if no later session
exists. In any other case the directory is rebuilt. A gateway without `--cluster` refuses a directory with
this file, and one with `--cluster` a directory of records without it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from seqgate.log import IncompatibleFormat, LocalDurability, Storage
from seqgate.log.rebuilding import BUCKET_SESSION

VERSION: Final = 1


class LocalSession(msgspec.Struct, frozen=True):
    address: str
    cluster_id: str
    session: int
    wal_end: int | None = None
    metadata_seq: int | None = None
    metadata_offset: int | None = None
    earlier: tuple[str, ...] = ()
    version: int = VERSION


class _Version(msgspec.Struct):
    version: int


def read_local_session(storage: Storage, root: str) -> LocalSession | None:
    """Return the file's content; None without a readable one. Raises OSError, IncompatibleFormat."""
    path = f"{root}/{BUCKET_SESSION}"
    try:
        content = storage.read_file(path)
    except FileNotFoundError:
        return None
    try:
        version = msgspec.json.decode(content, type=_Version).version
        if version > VERSION:
            raise IncompatibleFormat(f"{path} has version {version}; this program reads version {VERSION}.")
        return msgspec.json.decode(content, type=LocalSession)
    except msgspec.MsgspecError:
        return None


def encode_local_session(local: LocalSession) -> bytes:
    return msgspec.json.encode(local)


def write_local_session(storage: Storage, root: str, local: LocalSession) -> None:
    """Make the file durable: without it the directory would be no cache. Raises OSError."""
    LocalDurability(storage).replace(f"{root}/{BUCKET_SESSION}", encode_local_session(local))
