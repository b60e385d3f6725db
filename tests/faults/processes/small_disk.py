"""A small disk that a test fills and empties: a file system of its own where mounting is permitted, an injected one elsewhere."""

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
"""Room is taken in pieces: tmpfs gives all of a piece back when somebody else was faster."""
FLAG = "disk"


class SmallDisk(Protocol):
    """`folder` is on it; a gateway on it needs `environment`."""

    folder: Path
    environment: Mapping[str, str]

    def fill(self, left_bytes: int) -> None:
        """Leave so much room, 0 for none at all."""

    def free(self) -> None:
        """Give back what `fill` took."""


class Mounted:
    """A file system in memory; a large file takes its room."""

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
                except OSError:  # somebody else was faster
                    continue

    def free(self) -> None:
        self._ballast.unlink()


class Injected:
    """The folder of any disk, and a gateway that is told so (see `injected/sitecustomize.py`)."""

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
    # lazily: whoever still has a file open must not keep it mounted
    subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=True)
