"""Checks of a data directory and a bucket before a start changes either."""

from __future__ import annotations

from pathlib import Path

from gateway.cluster.rebuild.local_session import read_local_session
from gateway.cluster.rebuild.unfinished_import import read_import
from gateway.cluster.wal.persistence import PersistentReads
from gateway.cluster.wal.sessions import SharedLogContent
from gateway.homes.home import StartFailed
from log import IncompatibleFormat, Storage
from log.rebuilding import check_empty
from log.stopped import LOCK


class StartChecks:
    """Checks the data directory `path` and the bucket at `address`, whose cache the directory is or becomes."""

    def __init__(self, storage: Storage, path: Path, address: str) -> None:
        self._storage = storage
        self._path = path
        self._address = address

    def check_directory(self) -> None:
        """Check that the data directory is empty or a cache of this bucket. Raises StartFailed, OSError, IncompatibleFormat."""
        local = read_local_session(self._storage, str(self._path))
        if local is None:
            try:
                check_empty(self._storage, str(self._path))
            except IncompatibleFormat as error:
                raise StartFailed(
                    f"the data directory {self._path} holds files that are no cache of {self._address} ({error}); name an empty directory"
                ) from error
        elif local.address != self._address:
            raise StartFailed(
                f"the data directory {self._path} is a cache of {local.address}, not of {self._address}; name another directory"
            )

    def check_unlocked(self) -> None:
        """Check that no gateway uses the data directory; otherwise this start would end that gateway's session, and then fail itself.

        Raises DirectoryLocked, OSError.
        """
        lock = str(self._path / LOCK)
        self._storage.make_directories(str(self._path))
        self._storage.lock(lock)
        self._storage.unlock(lock)

    async def check_imported(self, reads: PersistentReads) -> None:
        """Check that the bucket is whole. Raises StartFailed, CorruptRegistration, IncompatibleFormat, Refused."""
        begun = await read_import(reads)
        if begun is not None:
            raise StartFailed(
                f"an import of {begun.path} on {begun.host} into {self._address} is not finished; run `seqgate cluster import` again"
            )

    def check_bucket(self, known: SharedLogContent) -> None:
        """Check that the bucket has the session that used the data directory last. Raises StartFailed, OSError, IncompatibleFormat.

        A bucket that was emptied or replaced has not what the directory has: the directory may be all that is left.
        """
        local = read_local_session(self._storage, str(self._path))
        if local is None:
            return
        last = known.of(local.session)
        is_dropped = last is None and known.base is not None and local.session < known.base.seq
        if (last is not None or is_dropped) and known.cluster_id == local.cluster_id:
            return
        raise StartFailed(
            f"the data directory {self._path} is a cache of the cluster {local.cluster_id}, and {self._address} has no session "
            f"{local.session} of this cluster, so somebody emptied or replaced the bucket; put its objects back, or name an empty "
            "directory"
        )
