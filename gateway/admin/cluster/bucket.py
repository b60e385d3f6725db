"""Opens the bucket that a command names, and turns its errors into sentences."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from seqgate.gateway.admin.cluster.command import ClusterState, Imported, Verification
from seqgate.gateway.admin.cluster.importing import import_directory
from seqgate.gateway.admin.cluster.state import cluster_state
from seqgate.gateway.admin.cluster.verification import Progress, verify
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


def read_state(config: Config) -> ClusterState:
    """Return what the bucket holds. Raises ControlError."""
    return in_bucket(config, cluster_state)


def check(config: Config, progress: Progress) -> Verification:
    """Read and check all of the bucket. Raises ControlError."""
    return in_bucket(config, lambda objects, address: verify(objects, address, progress))


def copy_into(config: Config, data_dir: Path, now_ms: int, progress: Progress) -> Imported:
    """Copy the data directory into the bucket, and check the copy. Raises ControlError."""
    return in_bucket(
        config,
        lambda objects, address: import_directory(objects, address, data_dir, config, now_ms, progress),
    )


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
