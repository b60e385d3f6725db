"""Temporary directories for the data of brokers, and what empties the data directory of a broker.

A temporary one is made when its path is first asked for, in memory (/dev/shm) where there is room, and is
removed at the end of the process at the latest. A process that is killed leaves its own behind; the next
process that needs one removes them. A lock tells whose process is alive.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Final

from seqgate.gateway.admin.request import SOCKET_NAME

_OF_A_PARTITION: Final = "partition.metadata"
_IDENTITY: Final = "meta.properties"


def empty(directory: Path) -> None:
    """Remove the data of a stopped broker.

    Files that no broker has written stay, because the test chose the directory; so does the identity of the
    directory. Without it, a broker would refuse a directory that holds other files.
    """
    from seqgate.log.stopped import KNOWN_NAMES  # noqa: PLC0415 - slow to import, and seldom needed

    if not directory.is_dir():
        return
    with os.scandir(directory) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                if entry.name != _IDENTITY and entry.name in {*KNOWN_NAMES, SOCKET_NAME}:
                    os.unlink(entry.path)  # noqa: PTH108 - a path of scandir
            elif entry.name in KNOWN_NAMES or os.path.exists(  # noqa: PTH110
                f"{entry.path}/{_OF_A_PARTITION}"
            ):
                shutil.rmtree(entry.path, ignore_errors=True)


VARIABLE: Final = "SEQGATE_TEST_DIRECTORY"
"""The environment variable that names the directory in which temporary directories are made."""
MEMORY: Final = Path("/dev/shm")  # noqa: S108 - in memory; mkdtemp makes private directories
MIN_FREE_BYTES: Final = 1 << 30
"""Free space below which directories are on the disk; containers have 64 MiB in memory by default."""
_PREFIX: Final = "seqgate-broker-"
_UNLOCKED_PREFIX: Final = "seqgate-new-"
"""Begins the name of a directory until its process holds the lock."""


class TemporaryDirectory:
    """At most one directory at a time. After `remove` the next use makes another one."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._end: weakref.finalize[..., TemporaryDirectory] | None = None

    @property
    def path(self) -> Path:
        if self._path is None:
            parent = temporary_place()
            _remove_abandoned(parent)
            self._path, lock = _make(parent)
            self._end = weakref.finalize(self, _remove, self._path, lock, os.getpid())
        return self._path

    def remove(self) -> None:
        self._path = None
        if self._end is not None:
            self._end()


def temporary_place() -> Path:
    """Return where temporary directories are: as SEQGATE_TEST_DIRECTORY says, in memory, or `tempfile`'s."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen)
    try:
        room = os.statvfs(MEMORY)
        has_room = room.f_bavail * room.f_frsize >= MIN_FREE_BYTES and os.access(MEMORY, os.W_OK | os.X_OK)
    except OSError:
        has_room = False
    return MEMORY if has_room else Path(tempfile.gettempdir())


def _make(parent: Path) -> tuple[Path, int]:
    """Return a new directory, which gets its name once it is locked, and the handle of the lock."""
    made = Path(tempfile.mkdtemp(prefix=_UNLOCKED_PREFIX, dir=parent))
    lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
    with contextlib.suppress(
        OSError
    ):  # a file system without locks; nobody else can take the lock there, either
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    path = made.with_name(_PREFIX + made.name.removeprefix(_UNLOCKED_PREFIX))
    return made.rename(path), lock


def _remove(path: Path, lock: int, process: int) -> None:
    if os.getpid() == process:  # a forked child must not remove what its parent uses
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _remove_abandoned(parent: Path) -> None:
    """Remove the directories of this user whose processes have ended without removing them."""
    for path in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another process uses it, or removes it just now
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(lock).st_uid == os.geteuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
