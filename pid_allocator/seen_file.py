"""The small file in which a gateway keeps its memory of the shared store."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from seqgate.pid_allocator.blocks import LastSeen, StoreWentBack, UnknownStoreVersion

VERSION: Final = 1
"""The version of the file's format. A file without a version has version 1."""


class _Content(msgspec.Struct):
    store_id: str
    next_producer_id: int
    version: int = VERSION


class _Version(msgspec.Struct):
    version: int = VERSION


class SeenFile:
    """The LastSeen as one JSON file, replaced whole: a crash leaves either the old or the new file."""

    def __init__(self, path: Path, replace: Callable[[str, bytes], None]) -> None:
        """Use `path`; its directory exists. `replace` replaces a file atomically, durably, in any thread."""
        self._path = path
        self._replace = replace

    async def load(self) -> LastSeen | None:
        """Return the saved LastSeen; None when there is no file. Raises UnknownStoreVersion for a file of a
        later version, and StoreWentBack for a file that can't be decoded.
        """
        return await load_seen(self._path)

    async def save(self, last_seen: LastSeen) -> None:
        """Replace the file; durable when this returns. Raises OSError."""
        content = _Content(last_seen.store_id, last_seen.next_producer_id)
        await asyncio.to_thread(self._replace, str(self._path), msgspec.json.encode(content))


async def load_seen(path: Path) -> LastSeen | None:
    """Return what a gateway last saved in `path`; None without a file. Raises as `SeenFile.load` does."""
    return await asyncio.to_thread(_load, path)


def _load(path: Path) -> LastSeen | None:
    try:
        content = path.read_bytes()
        version = msgspec.json.decode(content, type=_Version).version
        if version > VERSION:
            raise UnknownStoreVersion(
                f"{path} has version {version}; this program reads version {VERSION}. Upgrade this gateway."
            )
        found = msgspec.json.decode(content, type=_Content)
        return LastSeen(found.store_id, found.next_producer_id)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        # Without this file, the gateway can't notice that the store lost its newest data.
        raise StoreWentBack(
            f"{path} is damaged, so the gateway no longer knows the highest next id it saw: {error}. "
            "Restore the file. If the data in Redis is known to be complete, you can delete the file instead."
        ) from error


def newest_content(contents: Iterable[bytes]) -> bytes | None:
    """Return the content of the file with the highest next id; a damaged one is first. None without any."""

    def next_id(content: bytes) -> float:
        try:
            return msgspec.json.decode(content, type=_Content).next_producer_id
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return math.inf

    return max(contents, key=next_id, default=None)
