"""Opens the bucket that a command names, gives up when it does not answer in time, and turns its errors into
sentences.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from seqgate.gateway.admin.cluster.command import Bucket
from seqgate.gateway.admin.request import ControlError, NoAnswer
from seqgate.gateway.cluster.metadata.change import CorruptChange
from seqgate.gateway.cluster.objects.objects import (
    Buffer,
    Entry,
    Missing,
    ObjectStore,
    Refused,
    StoreFailed,
    Untrusted,
)
from seqgate.gateway.cluster.parts.manifest import Overtaken
from seqgate.gateway.cluster.parts.part_object import CorruptPart
from seqgate.gateway.cluster.rebuild.unfinished_import import KEY, UnfinishedImport, begin_import, read_import
from seqgate.gateway.cluster.wal.persistence import PersistentReads
from seqgate.gateway.cluster.wal.sessions import CorruptRegistration
from seqgate.gateway.cluster.wal.wal_object import CorruptWalObject, registration_key
from seqgate.gateway.metadata.records import UnknownRecordError
from seqgate.gateway.runtime.loop.machine import Machine
from seqgate.log import IncompatibleFormat, LogError

A = TypeVar("A")


def in_bucket(bucket: Bucket, work: Callable[[ObjectStore, str], Awaitable[A]]) -> A:
    """Run the work with the store of `seqgate.cluster` and its address. Raises ControlError."""
    address = bucket.config.optional_str("seqgate.cluster")
    if address is None:
        raise ControlError("name the bucket with --cluster s3://BUCKET/PREFIX or --cluster file:///DIRECTORY")
    try:
        return asyncio.run(_run(bucket, address, work))
    except StoreFailed as error:
        raise ControlError(f"{address} does not answer: {error}; try again") from error
    except (
        Refused,
        CorruptRegistration,
        CorruptChange,
        CorruptWalObject,
        CorruptPart,
        IncompatibleFormat,
        LogError,
        Overtaken,
        UnknownRecordError,
    ) as error:
        raise ControlError(f"the cluster {address} can't be used: {error}") from error


async def _run(bucket: Bucket, address: str, work: Callable[[ObjectStore, str], Awaitable[A]]) -> A:
    objects = Machine().objects(bucket.config)
    if bucket.timeout_s is not None:
        objects = ObjectsInTime(objects, address, bucket.timeout_s)
    try:
        await _check_trust(objects)
        return await work(objects, address)
    finally:
        await objects.close()


async def _check_trust(objects: ObjectStore) -> None:
    """Refuse a store whose certificate is not trusted: most commands wait for the store. Raises Refused."""
    try:
        await objects.get(registration_key(0))
    except Untrusted as error:
        raise Refused(str(error)) from error
    except (Missing, StoreFailed):
        return


async def take_bucket(
    reads: PersistentReads, address: str, ours: UnfinishedImport, check_empty: Callable[[], Awaitable[None]]
) -> None:
    """Take an empty bucket, or that of our own unfinished import. Raises ControlError, and what `check_empty`
    raises.
    """
    found = await read_import(reads)
    if found is None:
        await check_empty()
        found = await begin_import(reads, ours)
    if (found.cluster_id, found.directory_id) != (ours.cluster_id, ours.directory_id):
        raise ControlError(
            f"an import of {found.path} on {found.host} into {address} is not finished; finish it, or name "
            "another address"
        )


async def first_key(reads: PersistentReads) -> str | None:
    """Return the key of any object but those that a try of the store or an import has created."""

    async def find() -> str | None:
        async for entry in reads.objects.list(""):
            if not entry.key.startswith("probe/") and entry.key != KEY:
                return entry.key
        return None

    return await reads.answered(find)


class ObjectsInTime:
    """An `ObjectStore` that passes every call on to another one, and raises NoAnswer once a call, with those
    that failed before it, has had no answer for `limit_s`. Most work repeats a call that fails for ever.
    """

    def __init__(self, objects: ObjectStore, address: str, limit_s: float) -> None:
        self._objects = objects
        self._address = address
        self._limit_s = limit_s
        self._failing_since_s: float | None = None
        """When the first of the calls began that have failed since the last answer."""
        self._failure = ""
        """The reason of the last one that failed."""

    async def create(self, key: str, content: bytes | Sequence[Buffer]) -> None:
        await self._answered(self._objects.create(key, content))

    async def get(self, key: str, first: int = 0, size_bytes: int | None = None) -> bytes:
        return await self._answered(self._objects.get(key, first, size_bytes))

    async def get_end(self, key: str, size_bytes: int) -> bytes:
        return await self._answered(self._objects.get_end(key, size_bytes))

    async def read(self, key: str) -> tuple[bytes, str]:
        return await self._answered(self._objects.read(key))

    async def replace(self, key: str, content: bytes, version: str | None) -> str:
        return await self._answered(self._objects.replace(key, content, version))

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[Entry]:
        found = aiter(self._objects.list(prefix, after))
        while (entry := await self._answered(anext(found, None))) is not None:
            yield entry

    async def delete(self, key: str) -> None:
        await self._answered(self._objects.delete(key))

    async def close(self) -> None:
        await self._objects.close()

    async def _answered(self, call: Awaitable[A]) -> A:
        """Return the answer to a call; a refusal and a missing object are answers, too."""
        now_s = asyncio.get_running_loop().time
        since_s = now_s() if self._failing_since_s is None else self._failing_since_s
        try:
            async with asyncio.timeout_at(since_s + self._limit_s):
                answer = await call
        except (StoreFailed, TimeoutError) as error:
            self._failing_since_s = min(since_s, self._failing_since_s or since_s)
            if isinstance(error, StoreFailed):
                self._failure = f": {error}"
            if now_s() < since_s + self._limit_s:
                raise
            raise NoAnswer(
                f"gave up after {self._limit_s:g} s: {self._address} does not answer{self._failure}"
            ) from error
        except Exception:
            self._note_answer()
            raise
        self._note_answer()
        return answer

    def _note_answer(self) -> None:
        self._failing_since_s, self._failure = None, ""
