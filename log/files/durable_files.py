"""The operations that make files durable outside of a log's flush; `seqgate.log.durability.durability` carries them
out.

A start, a repair and the process that compacts call them for files that no ticket carries. They say what must
be durable and in which order. The durability decides whether the local disk must know: another one may keep
the truth elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from seqgate.log.files.storage import DataFile, Storage


class NoRoom(OSError):
    """The disk has no room for the new content of a file. The file has its old content still, and nothing is
    in doubt.
    """


class DurableFiles(Protocol):
    """Persists files and names. Any thread may call, but no method belongs on the event loop. All methods
    raise OSError.
    """

    def sync(
        self,
        *,
        data: Iterable[DataFile] = (),
        paths: Iterable[str] = (),
        directories: Iterable[str] = (),
    ) -> None:
        """Persist the bytes of the open data files, then of the files at `paths`, then the names in the
        directories.
        """

    def replace(self, path: str, content: bytes) -> None:
        """Replace the file's content atomically and durably: a crash leaves the old content or the new.
        Raises NoRoom.
        """

    def ensure(self, path: str, content: bytes) -> None:
        """Make sure that a file which was read as `content` is durable with that content."""


# Deletes directories with everything in them.


def empty(storage: Storage, directory: str, kept: Collection[str] = ()) -> None:
    """Delete all that a directory holds, but for these names. Raises OSError."""
    for entry in storage.entries(directory):
        if entry.name in kept:
            continue
        path = f"{directory}/{entry.name}"
        if entry.is_directory:
            remove_tree(storage, path)
        else:
            storage.delete(path)


def remove_tree(storage: Storage, directory: str) -> None:
    """Delete a directory with everything in it. Raises OSError."""
    empty(storage, directory)
    storage.delete_directory(directory)
