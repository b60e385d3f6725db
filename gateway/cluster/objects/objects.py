"""The port to an object store: creating, reading, replacing, listing and deleting objects by key.

A key is relative to the cluster's address. It consists of names between slashes; a name has letters, digits
and `-_.=`, and begins with no dot. No key is the folder of another key. An object is there as a whole or not
at all. Who reads after a change that succeeded sees the change; a listing may lack the newest changes.

The store never tries a call again by itself. A caller who gets `StoreFailed` from `create` or `replace` reads
the object to learn whether the store carried the call out; even after that, the call may still take effect.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, NamedTuple, Protocol, TypeVar

from seqgate.gateway.durations import Durations

Buffer = bytes | bytearray | memoryview
LONGEST_KEY: Final = 512
"""Characters of a key. S3 allows 1024 bytes together with the prefix of the address."""
_KEY: Final = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9_.=-]*(?:/[A-Za-z0-9_=-][A-Za-z0-9_.=-]*)*")


class StoreFailed(Exception):
    """A call failed (503, a reset, no answer), and the store may have carried it out or may still do so."""


class Untrusted(StoreFailed):
    """The store's certificate is not trusted: a start refuses, a running gateway waits for a better one."""


class AlreadyThere(Exception):
    """The key has an object. The caller may have created it by an earlier call whose answer was lost, and
    after a conflict of two creations (409) there may be no object.
    """


class Missing(Exception):
    """No object has the key."""


class Changed(Exception):
    """The object is another version. The caller may have changed it by a call whose answer was lost."""


class Refused(Exception):
    """The store never carries out this call (wrong credentials, no bucket). The message says what to do."""


class Entry(NamedTuple):
    key: str
    size_bytes: int
    modified_ms: int


class ObjectStore(Protocol):
    """The objects under one address. Every call may raise StoreFailed and Refused, and what it names."""

    async def create(self, key: str, content: bytes | Sequence[Buffer]) -> None:
        """Create the object, and return once the object is durable. A sequence of buffers is one content.
        Raises AlreadyThere if the key has an object, which stays as it is.
        """

    async def get(self, key: str, first: int = 0, size_bytes: int | None = None) -> bytes:
        """Return `size_bytes` bytes from byte `first` on, fewer at its end, or all. Raises Missing."""

    async def get_end(self, key: str, size_bytes: int) -> bytes:
        """Return the last `size_bytes` of the content, all of a smaller one. Raises Missing."""

    async def read(self, key: str) -> tuple[bytes, str]:
        """Return the content and its version. The same content may have the same version. Raises Missing."""

    async def replace(self, key: str, content: bytes, version: str | None) -> str:
        """Replace this version, or create the object when `version` is None; return the new version. Raises
        Changed if the object is another version, is missing, or, when `version` is None, is there.
        """

    def list(self, prefix: str, after: str = "") -> AsyncIterator[Entry]:
        """Yield the objects under `prefix` (empty, or with a slash) with a key above `after`, ascending."""

    async def delete(self, key: str) -> None:
        """Delete the object. It is no error when no object has the key."""

    async def close(self) -> None:
        """Release the connections. No call may follow."""


def check_key(key: str) -> None:
    """Check that `key` can be an object's key. Raises ValueError."""
    if len(key) > LONGEST_KEY or not _KEY.fullmatch(key):
        raise ValueError(
            f"{key!r} is no key of an object: names of letters, digits and -_.= between slashes, at most "
            f"{LONGEST_KEY} characters"
        )


def check_prefix(prefix: str) -> None:
    """Check that `prefix` can be the beginning of keys in a listing. Raises ValueError."""
    if prefix and not prefix.endswith("/"):
        raise ValueError(f"the prefix {prefix!r} of a listing must end with a slash")
    if prefix:
        check_key(prefix[:-1])


def joined(content: bytes | Sequence[Buffer]) -> bytes:
    return content if isinstance(content, bytes) else b"".join(content)


# Counts the calls to an object store, and what they cost by Amazon's list prices.

T = TypeVar("T")
US_DOLLARS_PER_1000_PUTS: Final = 0.005
US_DOLLARS_PER_1000_GETS: Final = 0.0004
"""S3 Standard in us-east-1. A listing costs as much as a put, for each page; deletions, and traffic within
the region, are free. Source: https://aws.amazon.com/s3/pricing, "Requests & data retrievals".
"""
ENTRIES_PER_PAGE: Final = 1000


@dataclass
class Counts:
    """The calls since the start. AlreadyThere, Missing and Changed are no failures."""

    puts: int = 0
    """Creations and replacements, failed ones included: a store charges for each request."""
    gets: int = 0
    lists: int = 0
    """Pages of listings."""
    deletes: int = 0
    bytes_up: int = 0
    """Bytes of contents that were sent, also in calls that failed."""
    bytes_down: int = 0
    failures: int = 0
    """Calls that ended with StoreFailed or Refused."""
    put_times: Durations = field(default_factory=Durations, compare=False)
    """How long puts took, failed ones included."""

    @property
    def us_dollars(self) -> float:
        """The price of the requests by Amazon's list."""
        puts = (self.puts + self.lists) * US_DOLLARS_PER_1000_PUTS
        return (puts + self.gets * US_DOLLARS_PER_1000_GETS) / 1000

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


class CountedObjects:
    """An `ObjectStore` that passes every call on to another one, and counts it."""

    def __init__(
        self,
        objects: ObjectStore,
        counts: Counts | None = None,
        seconds: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Take the store, and the counts to add to, if there are any. `seconds` times the puts."""
        self._seconds = seconds
        self.counts = Counts() if counts is None else counts
        self._objects = objects

    async def create(self, key: str, content: bytes | Sequence[Buffer]) -> None:
        self._count_put(content)
        await self._timed(self._objects.create(key, content))

    async def get(self, key: str, first: int = 0, size_bytes: int | None = None) -> bytes:
        self.counts.gets += 1
        return self._received(await self._watched(self._objects.get(key, first, size_bytes)))

    async def get_end(self, key: str, size_bytes: int) -> bytes:
        self.counts.gets += 1
        return self._received(await self._watched(self._objects.get_end(key, size_bytes)))

    async def read(self, key: str) -> tuple[bytes, str]:
        self.counts.gets += 1
        content, version = await self._watched(self._objects.read(key))
        return self._received(content), version

    async def replace(self, key: str, content: bytes, version: str | None) -> str:
        self._count_put(content)
        return await self._timed(self._objects.replace(key, content, version))

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[Entry]:
        self.counts.lists += 1
        yielded = 0
        try:
            async for entry in self._objects.list(prefix, after):
                if yielded and yielded % ENTRIES_PER_PAGE == 0:
                    self.counts.lists += 1
                yielded += 1
                yield entry
        except (StoreFailed, Refused):
            self.counts.failures += 1
            raise

    async def delete(self, key: str) -> None:
        self.counts.deletes += 1
        await self._watched(self._objects.delete(key))

    async def close(self) -> None:
        await self._objects.close()

    async def _timed(self, put: Awaitable[T]) -> T:
        begun_s = self._seconds()
        try:
            return await self._watched(put)
        finally:
            self.counts.put_times.add(self._seconds() - begun_s)

    async def _watched(self, call: Awaitable[T]) -> T:
        try:
            return await call
        except (StoreFailed, Refused):
            self.counts.failures += 1
            raise

    def _count_put(self, content: bytes | Sequence[Buffer]) -> None:
        self.counts.puts += 1
        buffers = [content] if isinstance(content, bytes) else content
        self.counts.bytes_up += sum(memoryview(buffer).nbytes for buffer in buffers)

    def _received(self, content: bytes) -> bytes:
        self.counts.bytes_down += len(content)
        return content
