"""The data directory of a broker for tests: one that the test gives, or a temporary one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from gateway.admin.address import SOCKET_NAME
from gateway.testing.temporary_directory import TemporaryDirectory

_OF_A_PARTITION: Final = "partition.metadata"
"""The file that each directory of a partition has."""
_IDENTITY: Final = "meta.properties"


class DataDirectory:
    """The data directory of one broker."""

    def __init__(self, given: Path | None) -> None:
        """Take the directory of the test. None: the data is in a temporary directory, made when its path is first asked for."""
        self._given = given
        self._temporary = TemporaryDirectory()

    @property
    def path(self) -> Path:
        """The path of the directory, which may not exist yet."""
        return self._temporary.path / "data" if self._given is None else self._given

    def remove_temporary(self) -> None:
        """Remove a temporary directory; a directory of the test stays."""
        self._temporary.remove()


def empty(directory: Path) -> None:
    """Remove the data of a stopped broker.

    Files that no broker has written stay, because the test chose the directory; so does the identity of the directory. Without it, a
    broker would refuse a directory that holds other files.
    """
    from log.stopped import KNOWN_NAMES  # noqa: PLC0415 - slow to import, and most brokers are never reset

    if not directory.is_dir():
        return
    with os.scandir(directory) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                if entry.name != _IDENTITY and entry.name in {*KNOWN_NAMES, SOCKET_NAME}:
                    os.unlink(entry.path)  # noqa: PTH108 - a path of scandir
            elif entry.name in KNOWN_NAMES or os.path.exists(f"{entry.path}/{_OF_A_PARTITION}"):  # noqa: PTH110
                shutil.rmtree(entry.path, ignore_errors=True)


def bootstrap_of(port: int) -> str:
    """Return the address for clients, HOST:PORT. Raises RuntimeError for port 0, that of a broker before its first start."""
    if not port:
        raise RuntimeError("the broker has no address before its first start: call start()")
    return f"127.0.0.1:{port}"
