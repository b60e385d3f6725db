"""Three gateways of one bucket, of which one is killed again and again."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from gateway.demo.processes import DemoGateway

GATEWAYS = 3
KILL_EVERY_S = 10.0
BUCKET = "bucket"


class DemoCluster:
    """The gateways, as a context manager. Their bucket and their caches are directories in `folder`.

    Between `begin_killing` and `end_killing`, every `kill_every_s` the gateway that is down is started again, and another one is killed.
    """

    def __init__(self, folder: Path, log_path: Path, kill_every_s: float) -> None:
        self.address = f"file://{folder.absolute() / BUCKET}"
        self.kills = 0
        """How many gateways were killed."""
        self._bucket = folder / BUCKET
        self._gateways = [
            DemoGateway(folder / f"cache-{number}", log_path, cluster=self.address)
            for number in range(1, GATEWAYS + 1)
        ]
        self._kill_every_s = kill_every_s
        self._is_over = threading.Event()
        self._killer = threading.Thread(target=self._kill_in_turn, name="killer", daemon=True)
        self._failure: Exception | None = None

    @property
    def bootstrap(self) -> str:
        """The addresses for clients, separated by commas."""
        return ",".join(gateway.bootstrap for gateway in self._gateways)

    def __enter__(self) -> Self:
        self._bucket.mkdir(parents=True)
        try:
            for gateway in self._gateways:
                gateway.start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        if self._killer.is_alive():
            self._killer.join()
        self._stop()

    def begin_killing(self) -> None:
        """Kill the first gateway soon, and then one after the other."""
        self._killer.start()

    def end_killing(self) -> None:
        """Kill no more, and start the gateway that is down. Raises DemoFailedError when one did not start again."""
        self._is_over.set()
        self._killer.join()
        if self._failure is not None:
            raise self._failure

    def _kill_in_turn(self) -> None:
        try:
            for gateway in itertools.cycle(self._gateways):
                if self._is_over.wait(self._kill_every_s / 2):
                    return
                gateway.kill()
                self.kills += 1
                self._is_over.wait(self._kill_every_s / 2)
                gateway.start()
        except Exception as error:  # noqa: BLE001 - `end_killing` raises it
            self._failure = error

    def _stop(self) -> None:
        for gateway in self._gateways:
            gateway.stop()
