"""The bucket that a command names: its options, how it is opened, when the command gives up, and its errors
as sentences. Commands import this module before they run, so it imports nothing of the gateway.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, TypeVar

from seqgate.gateway.admin.commands import option
from seqgate.gateway.admin.options import ConfigFile, asking, timeout_of
from seqgate.gateway.admin.request import ControlError, NoAnswer
from seqgate.gateway.admin.tables import count, counted

if TYPE_CHECKING:
    from seqgate.gateway.cluster.objects.objects import Buffer, Entry, ObjectStore
    from seqgate.gateway.cluster.rebuild.unfinished_import import UnfinishedImport
    from seqgate.gateway.cluster.wal.persistence import PersistentReads
    from seqgate.gateway.config import Config

A = TypeVar("A")
PROGRESS_EVERY_S: Final = 1.0

Address = Annotated[
    str | None,
    option(
        "--cluster",
        "ADDRESS",
        "The bucket or directory: s3://BUCKET/PREFIX or file:///DIRECTORY. [default: seqgate.cluster of "
        "--config]",
    ),
]
Settings = Annotated[
    list[str] | None,
    option("--set", "NAME=VALUE", "A setting, such as seqgate.cluster.endpoint; may be repeated."),
]
BucketTimeout = Annotated[
    int | None, timeout_of("from a gateway 30; for a bucket the command waits until it answers")
]


class Bucket(NamedTuple):
    """The settings that name a bucket, and after how long without an answer a command gives up."""

    config: Config
    timeout_s: int | None


@contextmanager
def bucket_settings(
    address: Address = None,
    settings: Settings = None,
    config_file: ConfigFile = None,
    timeout_s: BucketTimeout = None,
) -> Iterator[Bucket]:
    """Yield the bucket that the options name; an error ends the command with its sentence."""
    named = () if address is None else (f"seqgate.cluster={address}",)
    with asking(config_file, None, (*(settings or ()), *named), asks_gateway=False) as client:
        yield Bucket(client.read_config(), timeout_s)


def in_bucket(bucket: Bucket, work: Callable[[ObjectStore, str], Awaitable[A]]) -> A:
    """Run the work with the store of `seqgate.cluster` and its address. Raises ControlError."""
    address = bucket.config.optional_str("seqgate.cluster")
    if address is None:
        raise ControlError("name the bucket with --cluster s3://BUCKET/PREFIX or --cluster file:///DIRECTORY")
    import asyncio  # noqa: PLC0415 - slow to import

    from seqgate.gateway.cluster.metadata.change import CorruptChange  # noqa: PLC0415
    from seqgate.gateway.cluster.objects.objects import Refused, StoreFailed  # noqa: PLC0415
    from seqgate.gateway.cluster.parts.manifest import Overtaken  # noqa: PLC0415
    from seqgate.gateway.cluster.parts.part_object import CorruptPart  # noqa: PLC0415
    from seqgate.gateway.cluster.wal.sessions import CorruptRegistration  # noqa: PLC0415
    from seqgate.gateway.cluster.wal.wal_object import CorruptWalObject  # noqa: PLC0415
    from seqgate.gateway.metadata.records import UnknownRecordError  # noqa: PLC0415
    from seqgate.log import IncompatibleFormat, LogError  # noqa: PLC0415

    damaged = CorruptRegistration, CorruptChange, CorruptWalObject, CorruptPart, UnknownRecordError
    try:
        return asyncio.run(_run(bucket, address, work))
    except StoreFailed as error:
        raise ControlError(f"{address} does not answer: {error}; try again") from error
    except (Refused, *damaged, IncompatibleFormat, LogError, Overtaken) as error:
        raise ControlError(f"the cluster {address} can't be used: {error}") from error


async def _run(bucket: Bucket, address: str, work: Callable[[ObjectStore, str], Awaitable[A]]) -> A:
    from seqgate.gateway.runtime.loop.machine import Machine  # noqa: PLC0415 - slow to import

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
    from seqgate.gateway.cluster.objects.objects import Missing, Refused, StoreFailed, Untrusted  # noqa: PLC0415
    from seqgate.gateway.cluster.wal.wal_object import registration_key  # noqa: PLC0415

    try:
        await objects.get(registration_key(0))
    except Untrusted as error:
        raise Refused(str(error)) from error
    except (Missing, StoreFailed):
        return


async def begin_or_resume_import(
    reads: PersistentReads,
    address: str,
    ours: UnfinishedImport,
    *,
    check_empty: Callable[[], Awaitable[None]],
) -> None:
    """Begin an import into an empty bucket, or resume our own that ended early. Raises ControlError where
    another import is not finished, and what `check_empty` raises.
    """
    from seqgate.gateway.cluster.rebuild.unfinished_import import begin_import, read_import  # noqa: PLC0415 - slow

    found = await read_import(reads)
    if found is None:
        await check_empty()
        found = await begin_import(reads, ours)
    if (found.cluster_id, found.directory_id) != (ours.cluster_id, ours.directory_id):
        raise ControlError(
            f"an import or a restore of {found.path} on {found.host} into {address} is not finished; finish "
            "it, or name another address"
        )


async def first_key(reads: PersistentReads) -> str | None:
    """Return the key of any object but those that a try of the store or an import has created."""
    from seqgate.gateway.cluster.rebuild.unfinished_import import KEY  # noqa: PLC0415 - slow to import

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
        import asyncio  # noqa: PLC0415 - slow to import

        from seqgate.gateway.cluster.objects.objects import StoreFailed  # noqa: PLC0415

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


class ProgressLine:
    """Prints on the terminal how far a command is, at most once a second; nothing without a terminal."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._shown_s = time.monotonic()

    def show(self, objects: int, size_bytes: int) -> None:
        """Show the numbers of objects and bytes, unless the last ones were shown just now."""
        now_s = time.monotonic()
        if sys.stderr.isatty() and now_s - self._shown_s >= PROGRESS_EVERY_S:
            self._shown_s = now_s
            print(f"{self._verb}: {counted(objects, 'object')}, {count(size_bytes)} bytes", file=sys.stderr)
