"""A home on the local disk: the data directory is all there is."""

from __future__ import annotations

import asyncio
from typing import Final, NoReturn

from gateway.admin.system_errors import in_words
from gateway.cluster.rebuild.local_session import read_local_session
from gateway.config import Config
from gateway.homes.home import StartFailed
from gateway.runtime.loop.machine import Machine
from gateway.runtime.partitions.flusher import Flusher
from gateway.runtime.partitions.log_flusher import LogFlusher
from gateway.runtime.partitions.readiness import ALWAYS_READY
from gateway.runtime.services import Services
from log import Durability, IncompatibleFormat, LocalDurability


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
        self._machine = machine
        self.durability: Durability = LocalDurability(machine.storage)

    async def enter(self) -> None:
        """Refuse the cache of a bucket: its files are not durable, and the bucket may have newer ones. Raises StartFailed."""
        try:
            local = read_local_session(self._machine.storage, self._path)
        except (OSError, IncompatibleFormat) as error:
            raise StartFailed(
                f"the data directory {self._path} can't be opened: {in_words(error)}"
            ) from error
        if local is not None:
            raise StartFailed(
                f"the data directory {self._path} is a cache of {local.address}, which has the records; start with "
                f"--cluster {local.address}, or name another directory"
            )

    def flusher(self, loop: asyncio.AbstractEventLoop, durability: Durability) -> LogFlusher:
        return Flusher(loop, machine=self._machine, durability=durability)

    async def begin(self, services: Services) -> None:
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
