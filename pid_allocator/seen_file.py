"""The small file in which a gateway keeps its memory of the shared store."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

import msgspec

from pid_allocator.block_store import LastSeen, StoreWentBack, UnknownStoreVersion

VERSION: Final = 1
"""The version of the file's format. A file without a version has version 1."""


class _Content(msgspec.Struct):
    store_id: str
    next_producer_id: int
    version: int = VERSION


class _Version(msgspec.Struct):
    version: int = VERSION


class SeenFile:
    """The LastSeen as one JSON file. A save replaces the whole file: a crash leaves either the old or the new file."""

    def __init__(self, path: Path) -> None:
        """Use `path`, whose directory exists."""
        self._path = path

    async def load(self) -> LastSeen | None:
        """Return the saved LastSeen; None when there is no file.

        Raises UnknownStoreVersion for a file of a later version, and StoreWentBack for a file that can't be decoded.
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
                    f"{self._path} has version {version}; this program reads version {VERSION}. "
                    "Upgrade this gateway."
                )
            found = msgspec.json.decode(content, type=_Content)
            return LastSeen(found.store_id, found.next_producer_id)
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            # Without this memory, a store that went back looks like a sound store.
            raise StoreWentBack(
                f"{self._path} is damaged, so the gateway no longer knows the highest next id it saw: {error}. "
                "Restore the file. If the data in Redis is known to be complete, you can delete the file instead."
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
