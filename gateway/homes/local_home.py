"""A home on the local disk: the data directory is all there is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final, NoReturn

from seqgate.gateway.admin.request import in_words
from seqgate.gateway.cluster.cache.worker_caches import caches_in
from seqgate.gateway.cluster.rebuild.local_session import read_local_session
from seqgate.gateway.config import Config
from seqgate.gateway.homes.home import StartFailed
from seqgate.gateway.metadata.records import UnknownRecordError
from seqgate.gateway.runtime.loop.machine import Machine
from seqgate.gateway.runtime.partitions.flusher import Flusher, LogFlusher
from seqgate.gateway.runtime.partitions.partition import ALWAYS_READY
from seqgate.gateway.runtime.services import Services
from seqgate.log import (
    DirectoryLocked,
    Durability,
    IncompatibleFormat,
    LocalDurability,
    LogError,
    Storage,
)
from seqgate.log.sharing import is_shared


class LocalHome:
    """The local disk: the data directory is all there is."""

    fetcher: Final = None
    hold: Final = None
    calls: Final = None
    cache: Final = None
    open_journal: Final = None
    lease: Final = None
    readiness: Final = ALWAYS_READY

    def __init__(self, config: Config, machine: Machine) -> None:
        self._path = config.str("log.dirs")
        self._config = config
        self._machine = machine
        self.durability: Durability = LocalDurability(machine.storage)

    async def enter(self) -> None:
        """Refuse the cache of a bucket, and make a directory whole that several workers had last. Raises
        StartFailed.
        """
        storage = self._machine.storage
        check_no_cache(storage, self._config)
        if not is_shared(storage, self._path):
            return
        from seqgate.gateway.workers.shared_directory import recover_whole  # noqa: PLC0415 - seldom needed

        try:
            recover_whole(storage, Path(self._path), self._config.int("node.id"), self._machine.clock.now_ms)
        except DirectoryLocked as error:
            raise StartFailed(str(error)) from error
        except (LogError, IncompatibleFormat, OSError, UnknownRecordError) as error:
            raise StartFailed(
                f"the data directory {self._path} can't be opened: {in_words(error)}"
            ) from error

    def flusher(self, loop: asyncio.AbstractEventLoop, durability: Durability) -> LogFlusher:
        return Flusher(loop, machine=self._machine, durability=durability)

    async def begin(self, services: Services) -> None:
        pass

    async def prepare_stop(self) -> None:
        pass

    async def rest(self) -> None:
        pass

    async def resign(self, *, is_clean: bool) -> None:
        pass

    async def ended(self) -> NoReturn:
        while True:
            await asyncio.Event().wait()

    async def leave(self, *, is_clean: bool) -> None:
        pass


def check_no_cache(storage: Storage, config: Config) -> None:
    """Check that the data directory is no cache of a bucket: its files are not durable, and the bucket may
    have newer ones.

    Raises StartFailed.
    """
    path = config.str("log.dirs")
    try:
        local = read_local_session(storage, path)
    except (OSError, IncompatibleFormat) as error:
        raise StartFailed(f"the data directory {path} can't be opened: {in_words(error)}") from error
    if caches_in(Path(path)):
        raise StartFailed(
            f"the data directory {path} has the caches of workers of a bucket; start with --cluster, or name "
            "another directory"
        )
    if local is not None:
        raise StartFailed(
            f"the data directory {path} is a cache of {local.address}, which has the records; start with "
            f"--cluster {local.address}, or name another directory"
        )
