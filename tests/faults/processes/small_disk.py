"""A small disk that a test fills and empties: a file system of its own if the process may mount one,
otherwise an injected disk.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

INJECTED = Path(__file__).with_name("injected")
SIZE_BYTES = 512 << 20
AT_ONCE_BYTES = 16 << 20
"""Room is taken in pieces of this size: tmpfs gives back a whole piece when another process was faster."""
FLAG = "disk"


class SmallDisk(Protocol):
    """A disk that contains `folder`. A gateway on this disk needs the variables in `environment`."""

    folder: Path
    environment: Mapping[str, str]

    def fill(self, left_bytes: int) -> None:
        """Leave `left_bytes` of free space; 0 for none."""

    def free(self) -> None:
        """Free the space that `fill` took."""


class Mounted:
    """A file system in memory; a large file fills it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment: Mapping[str, str] = {}
        self._ballast = folder / "ballast"

    def fill(self, left_bytes: int) -> None:
        with self._ballast.open("ab") as file:
            while True:
                told = os.statvfs(self.folder)
                room = told.f_bavail * told.f_frsize - left_bytes
                if room <= 0:
                    return
                try:
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), min(room, AT_ONCE_BYTES))
                except OSError:  # another process took the space first
                    continue

    def free(self) -> None:
        self._ballast.unlink()


class Injected:
    """A folder on any disk; a patched gateway believes that the disk is full (see
    `injected/sitecustomize.py`).
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._flag = folder / FLAG
        self._flag.write_text("")
        self.environment: Mapping[str, str] = {
            "PYTHONPATH": str(INJECTED),
            "SEQGATE_TEST_DISK": str(self._flag),
        }

    def fill(self, left_bytes: int) -> None:
        self._flag.write_text("low" if left_bytes else "full")

    def free(self) -> None:
        self._flag.write_text("")


def may_mount(directory: Path) -> bool:
    """Whether this process may mount file systems."""
    folder = directory / "may-mount"
    folder.mkdir(parents=True, exist_ok=True)
    if not _mount(folder, 1 << 20):
        return False
    _unmount(folder)
    return True


@contextmanager
def mounted(folder: Path) -> Iterator[Mounted]:
    folder.mkdir(parents=True, exist_ok=True)
    assert _mount(folder, SIZE_BYTES)
    try:
        yield Mounted(folder)
    finally:
        _unmount(folder)


def _mount(folder: Path, size_bytes: int) -> bool:
    words = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def _unmount(folder: Path) -> None:
    # detach lazily: an open file of a process must not keep the disk mounted
    subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=True)
