"""Fetches blocks of segments that the local disk lacks, for readers on the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Final, Protocol

from seqgate.log import Place
from seqgate.log.sparse import BLOCK_BYTES, SegmentKey, SparseDisk, SparseFile

HELD_AT_ONCE: Final = 8
"""Blocks that are fetched at the same time for a user who needs whole files."""


class BlockSource(Protocol):
    """The port that reads segments from the bucket."""

    async def read(self, key: SegmentKey, position: int, size_bytes: int) -> bytes:
        """Return bytes of a segment file, checked; wait while the store does not answer. Raises OSError: they
        are lost.
        """


class BlockCache:
    """The segments in the bucket whose blocks the local disk lacks or has. Use it in the event loop."""

    def __init__(self, sparse: SparseDisk, source: BlockSource) -> None:
        self.sparse = sparse
        self._source = source
        self.blocks_fetched = 0
        """The number of blocks fetched since the start."""
        self.bytes_fetched = 0
        self.when_filled: list[Callable[[int], None]] = []
        """Called with the number of bytes that a block added to the local disk."""

        self.make_room: Callable[[int], Awaitable[None]] | None = None
        """Evicts blocks until the disk has room for this number of bytes, before whole files are fetched.
        Raises OSError.
        """

    def is_absent(self, place: Place) -> bool:
        """Return whether the local disk lacks a byte of the place."""
        file = self.sparse.find(place.path)
        return file is not None and file.lacks(place.position, place.size_bytes)

    async def bring_in(self, place: Place) -> int:
        """Fetch the block that begins at the place, and return its size in bytes. Raises OSError."""
        file = self.sparse.find(place.path)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "the segment is no longer part of the log", place.path)
        number = place.position // BLOCK_BYTES
        await self._fetch(file, number)
        return file.block_bytes(number)

    @contextlib.asynccontextmanager
    async def held(self, paths: Iterable[str]) -> AsyncIterator[None]:
        """Keep whole segment files on the local disk within the `async with` block; fetch what they lack
        first. Raises OSError.

        For users that read the files past this process: the process that compacts.
        """
        files = [file for path in paths if (file := self.sparse.files.of(path)) is not None]
        for file in files:
            self.sparse.pin(file)
        try:
            absent_bytes = sum(file.absent_bytes for file in files)
            if absent_bytes and self.make_room is not None:
                await self.make_room(absent_bytes)
            await self._fetch_all(files)
            yield
        finally:
            for file in files:
                self.sparse.unpin(file)

    async def _fetch_all(self, files: Iterable[SparseFile]) -> None:
        room = asyncio.Semaphore(HELD_AT_ONCE)

        async def fetch(file: SparseFile, number: int) -> None:
            async with room:
                await self._fetch(file, number)

        for file in files:
            absent = [number for number in range(file.absent.bit_length()) if file.absent >> number & 1]
            fetches = [asyncio.ensure_future(fetch(file, number)) for number in absent]
            try:
                await asyncio.gather(*fetches)
            finally:
                for one in fetches:
                    one.cancel()

    async def _fetch(self, file: SparseFile, number: int) -> None:
        key = file.key
        if key is None or not file.absent >> number & 1:
            return
        position, size_bytes = number * BLOCK_BYTES, file.block_bytes(number)
        try:
            data = await self._source.read(key, position, size_bytes)
            await asyncio.to_thread(self.sparse.fill, file, number, data)
        except OSError as error:
            self.sparse.failures[file, number] = error
            raise
        self.blocks_fetched += 1
        self.bytes_fetched += size_bytes
        for callback in self.when_filled:
            callback(size_bytes)
