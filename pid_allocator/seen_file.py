"""A gateway's memory of the shared store as a small file of its own."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

import msgspec

from pid_allocator.block_store import LastSeen, StoreWentBack, UnknownStoreVersion

VERSION: Final = 1
"""A file without a version is of version 1 too."""


class _Content(msgspec.Struct):
    store_id: str
    next_producer_id: int
    version: int = VERSION


class _Version(msgspec.Struct):
    version: int = VERSION


class SeenFile:
    """Keeps the LastSeen in one JSON file, replaced whole: a crash leaves the old or the new one."""

    def __init__(self, path: Path) -> None:
        """Use `path`, whose directory exists."""
        self._path = path

    async def load(self) -> LastSeen | None:
        """Return what was saved last; None when there is no file. Raises UnknownStoreVersion, StoreWentBack.

        The latter when the file can't be read.
        """
        return await asyncio.to_thread(self._load)

    async def save(self, last_seen: LastSeen) -> None:
        """Replace the file; durable when this returns. Raises OSError."""
        await asyncio.to_thread(self._save, last_seen)

    def _load(self) -> LastSeen | None:
        try:
            content = self._path.read_bytes()
            version = msgspec.json.decode(content, type=_Version).version
            if version > VERSION:
                raise UnknownStoreVersion(
                    f"{self._path} has version {version}; this program reads version {VERSION}."
                )
            found = msgspec.json.decode(content, type=_Content)
            return LastSeen(found.store_id, found.next_producer_id)
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            # Without the memory a store that went back could not be told from a sound one.
            raise StoreWentBack(
                f"{self._path} no longer tells what was last seen of the store: {error}"
            ) from error

    def _save(self, last_seen: LastSeen) -> None:
        fresh = self._path.with_name(self._path.name + ".tmp")
        with fresh.open("wb") as file:
            file.write(msgspec.json.encode(_Content(last_seen.store_id, last_seen.next_producer_id)))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        directory = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
