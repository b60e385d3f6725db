"""Opens the bucket that a command names, and turns its errors into sentences."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.cluster.metadata.change import CorruptChange
from seqgate.gateway.cluster.objects.objects import Missing, ObjectStore, Refused, StoreFailed, Untrusted
from seqgate.gateway.cluster.parts.manifest import Overtaken
from seqgate.gateway.cluster.parts.part_object import CorruptPart
from seqgate.gateway.cluster.wal.sessions import CorruptRegistration
from seqgate.gateway.cluster.wal.wal_object import CorruptWalObject, registration_key
from seqgate.gateway.config import Config
from seqgate.gateway.metadata.records import UnknownRecordError
from seqgate.gateway.runtime.loop.machine import Machine
from seqgate.log import IncompatibleFormat, LogError

A = TypeVar("A")


def in_bucket(config: Config, work: Callable[[ObjectStore, str], Awaitable[A]]) -> A:
    """Run the work with the store of `seqgate.cluster` and its address. Raises ControlError."""
    address = config.optional_str("seqgate.cluster")
    if address is None:
        raise ControlError("name the bucket with --cluster s3://BUCKET/PREFIX or --cluster file:///DIRECTORY")
    try:
        return asyncio.run(_run(config, address, work))
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


async def _run(config: Config, address: str, work: Callable[[ObjectStore, str], Awaitable[A]]) -> A:
    objects = Machine().objects(config)
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
