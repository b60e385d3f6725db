"""Finds the objects of a bucket that make one moment of its cluster, for a backup of the bucket.

Gateways run meanwhile. **The order of the reads** makes the objects fit together:

1. The boundaries of all write-ahead logs, then the manifests of all partitions (`Base`). What a log has below
   its boundary is in one of these manifests, as a gateway moves the boundary after the manifest.
2. The ends of all logs, and of the metadata, at one moment (`Cut`). The manifests are older, so they have
   nothing that came later.
3. The objects themselves. Objects of logs and parts never change, so they may be read at any later time.

An object that was deleted before it was read spoils the moment (`Moved`): read everything again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from seqgate.gateway.cluster.metadata.shared_log import read_metadata, snapshot_seqs
from seqgate.gateway.cluster.objects.objects import ObjectStore
from seqgate.gateway.cluster.parts.manifest import (
    Manifest,
    PartitionKey,
    decode_manifest,
    manifest_key,
    part_key,
)
from seqgate.gateway.cluster.wal.ended import SessionState
from seqgate.gateway.cluster.wal.persistence import PersistentReads
from seqgate.gateway.cluster.wal.sessions import (
    LogShortened,
    RegisteredSession,
    SharedLogContent,
    check_not_shortened,
    encode_boundary,
    read_boundary,
    read_on,
    read_sessions_boundary,
    read_shortened,
)
from seqgate.gateway.cluster.wal.wal_object import (
    FOOTER_BYTES,
    SESSIONS_BOUNDARY_KEY,
    SHORTENED_KEY,
    boundary_key,
    identify,
    object_key,
    registration_key,
    snapshot_key,
)
from seqgate.gateway.tasks import all_of

R = TypeVar("R")
T = TypeVar("T")
Found = tuple[str, bytes]
#: An object: its key and its content.
PartitionsOf = Callable[[SharedLogContent], Collection[PartitionKey]]
READS_AT_ONCE: Final = 32
"""Requests under way at the same time; as many small objects are in memory."""
LOGS_AT_ONCE: Final = 8
"""Objects of a write-ahead log that are read at the same time: each may have 8 MiB."""


class Moved(Exception):
    """The bucket changed in a way that spoils the moment; the message is a sentence. Begin again."""


class Cut(NamedTuple):
    """The ends of the metadata log, and of the logs of all live sessions by their numbers, at one moment."""

    metadata_end: int
    live: Mapping[int, int]


class StoredManifest(NamedTuple):
    content: bytes
    manifest: Manifest


class Base(NamedTuple):
    """The boundaries of write-ahead logs, and manifests that were read after them."""

    sessions_boundary: int
    boundaries: Mapping[int, int]
    """The boundaries by session; a session that is missing had none."""
    manifests: Mapping[PartitionKey, StoredManifest]


class MomentReads:
    """Reads one moment. Waits until the store answers. All methods raise CorruptRegistration, CorruptChange,
    CorruptPart, CorruptWalObject, IncompatibleFormat, Refused.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._reads = PersistentReads(objects, "the backup waits to read the bucket")
        self.known = SharedLogContent()
        """The metadata that was read so far: up to the cut at the end."""

    async def base(self, partitions_of: PartitionsOf) -> Base:
        """Read the boundaries and manifests. `partitions_of` returns all partitions that the metadata has.
        Raises Moved.
        """
        self.known = await read_metadata(self._objects)
        sessions_boundary = await read_sessions_boundary(self._reads)
        numbers = [each for each in self.known.sessions if each.session >= sessions_boundary]
        found = await _gathered(numbers, lambda each: read_boundary(self._reads, each.node_id, each.session))
        # Whoever wrote a row below a boundary knew its topic, so the metadata has the topic after this.
        try:
            await read_on(self._reads, self.known)
        except LogShortened as error:
            raise Moved(str(error)) from error
        partitions = sorted(partitions_of(self.known))
        manifests = await _gathered(partitions, self._manifest)
        return Base(
            sessions_boundary,
            {session.session: boundary for session, boundary in zip(numbers, found, strict=True)},
            {each: stored for each, stored in zip(partitions, manifests, strict=True) if stored is not None},
        )

    async def check_end(self) -> None:
        """Check that no gateway has begun a session since the base was read. Raises Moved."""
        if await self._reads.find(registration_key(self.known.end_seq)) is not None:
            raise Moved("a gateway starts")

    async def follow(self, metadata_end: int) -> None:
        """Read the metadata up to the cut, which is no earlier than the base. Raises Moved."""
        begin = self.known.end_seq
        while self.known.end_seq < metadata_end:
            end = min(metadata_end, self.known.end_seq + READS_AT_ONCE)
            for content in await _gathered(map(registration_key, range(self.known.end_seq, end)), self.get):
                self.known.add(content)
        try:
            await check_not_shortened(self._reads, begin)
        except LogShortened as error:
            raise Moved(str(error)) from error
        if self.known.end_seq != metadata_end:
            raise Moved(f"the metadata ended at {metadata_end}, and had {self.known.end_seq} objects before")

    async def metadata(self, base: Base) -> AsyncIterator[Found]:
        """Yield what a start reads of the metadata. Raises Moved."""
        end = self.known.end_seq
        shortened = await read_shortened(self._reads)
        if shortened > end:
            raise Moved(f"the metadata log begins at object {shortened} by now, behind the moment")
        kept_end = min(shortened, self.known.kept_end or 0)
        snapshots = [seq for seq in await snapshot_seqs(self._reads) if shortened <= seq <= end]
        if shortened and shortened not in snapshots:
            raise Moved(f"{snapshot_key(shortened)} is missing")
        for seq in snapshots:
            yield snapshot_key(seq), await self.get(snapshot_key(seq))
        numbers = [*range(kept_end), *range(shortened, end)]
        for begin in range(0, len(numbers), READS_AT_ONCE):
            keys = [registration_key(seq) for seq in numbers[begin : begin + READS_AT_ONCE]]
            for found in zip(keys, await _gathered(keys, self.get), strict=True):
                yield found
        for key, boundary in (SHORTENED_KEY, shortened), (SESSIONS_BOUNDARY_KEY, base.sessions_boundary):
            if boundary:
                yield key, encode_boundary(boundary)

    async def logs(
        self, base: Base, cut: Cut, state: Callable[[RegisteredSession], SessionState]
    ) -> AsyncIterator[Found]:
        """Yield the objects of write-ahead logs, those of ended sessions with their seals. Raises Moved.
        `state` says what the metadata knows of a session at the cut.
        """
        for session in self.known.sessions:
            if session.session < base.sessions_boundary:
                continue
            first = base.boundaries.get(session.session, 0)
            end = cut.live.get(session.session)
            if end is None and state(session) is not SessionState.ENDED:
                continue  # it is no broker yet, so nobody was told of anything that it wrote
            async for found in self._log(session, first, end):
                yield found
            if first:
                yield boundary_key(session.node_id, session.session), encode_boundary(first)

    async def _log(self, session: RegisteredSession, seq: int, end: int | None) -> AsyncIterator[Found]:
        """Yield the objects of a log up to `end`, by default up to its seal. Raises Moved."""
        while end is None or seq < end:
            following = seq + LOGS_AT_ONCE if end is None else min(end, seq + LOGS_AT_ONCE)
            keys = [object_key(session.node_id, session.session, each) for each in range(seq, following)]
            contents = await _gathered(keys, self._reads.find)
            for key, content in zip(keys, contents, strict=True):
                if content is None:
                    raise Moved(f"{key} is missing")
                yield key, content
                if identify(content[-FOOTER_BYTES:], key).is_seal:
                    return
            seq = following

    async def _manifest(self, partition: PartitionKey) -> StoredManifest | None:
        key = manifest_key(partition)
        content = await self._reads.find(key)
        return None if content is None else StoredManifest(content, decode_manifest(content, key))

    async def get(self, key: str) -> bytes:
        """Return an object. Raises Moved."""
        content = await self._reads.find(key)
        if content is None:
            raise Moved(f"{key} is missing")
        return content


def parts_of(manifest: Manifest) -> dict[str, int]:
    """Return the keys of the objects that a manifest names, with their sizes but for a few bytes each."""
    sizes = {part.name: part.length for segment in manifest.segments for part in segment.parts}
    sizes |= {file.stored: file.length for file in manifest.files if file.stored is not None}
    return {part_key(manifest.key, name): size for name, size in sizes.items()}


async def _gathered(each: Iterable[T], read: Callable[[T], Awaitable[R]]) -> list[R]:
    """Return what `read` returns of each, in order; some are read at once."""
    turns = asyncio.Semaphore(READS_AT_ONCE)

    async def one(item: T) -> R:
        async with turns:
            return await read(item)

    return await all_of([asyncio.create_task(one(item)) for item in each])
