"""Notes every flush on the event loop of a gateway that serves requests.

The lone quick flush of one small ticket, which docs/contributing/decisions/log.md explains, is allowed. Any other flush on the
loop is a breach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from seqgate.log import FlushTicket, LocalDurability, Storage
from seqgate.log.files.storage import DataFile
from tests.simulation.loop import SimulatedLoop


class WatchedDurability(LocalDurability):
    """Calls `note` with each flush that blocks the event loop while the gateway serves (`is_serving`)."""

    def __init__(
        self,
        storage: Storage,
        loop: SimulatedLoop,
        is_serving: Callable[[], bool],
        note: Callable[[str], None],
    ) -> None:
        super().__init__(storage)
        self._loop = loop
        self._is_serving = is_serving
        self._note = note
        self._is_committing = False

    def commit(self, tickets: Sequence[FlushTicket]) -> list[OSError | None]:
        if not (len(tickets) == 1 and tickets[0].is_small):
            self._check("a commit of tickets")
        self._is_committing = True
        try:
            return super().commit(tickets)
        finally:
            self._is_committing = False

    def sync(
        self, *, data: Iterable[DataFile] = (), paths: Iterable[str] = (), directories: Iterable[str] = ()
    ) -> None:
        data, paths, directories = list(data), list(paths), list(directories)
        if data or paths or directories:
            self._check(f"a sync of {[file.path for file in data]}, {paths} and {directories}")
        super().sync(data=data, paths=paths, directories=directories)

    def replace(self, path: str, content: bytes) -> None:
        self._check(f"a replacement of {path}")
        super().replace(path, content)

    def ensure(self, path: str, content: bytes) -> None:
        self._check(f"a check of {path}")
        super().ensure(path, content)

    def _check(self, what: str) -> None:
        if self._is_committing or self._loop.is_in_thread or not self._is_serving():
            return
        self._note(f"the event loop waited for the disk: {what}")
