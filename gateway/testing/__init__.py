"""A gateway in a thread of a test's own process, on a free port: it starts in about ten milliseconds.

    with LocalGateway(tmp_path / "data") as gateway:
        producer = KafkaProducer(bootstrap_servers=gateway.bootstrap)

`gateway.testing.plugin` has the fixtures for pytest.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Final, Self

import uvloop

from gateway.config import Config, load_config
from gateway.config.setting import LONG_MAX
from gateway.gateway import Gateway

__all__ = ["SETTINGS", "LocalGateway"]

SETTINGS: Final[Mapping[str, str]] = {
    "log.flush.interval.messages": str(LONG_MAX),
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
"""The settings that make a gateway quick: no fsync before an answer, no wait for further members, small internal topics."""


class LocalGateway:
    """A gateway on a data directory. It can be stopped and started again, and keeps its port and its data."""

    def __init__(self, data_dir: Path, settings: Mapping[str, str] | None = None) -> None:
        """Prepare the gateway; `settings` override SETTINGS. Raises ConfigError for a wrong setting."""
        self._settings = {**SETTINGS, **(settings or {}), "log.dirs": str(data_dir)}
        self._port = 0
        self._thread: threading.Thread | None = None
        self._ended: Future[None]
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event
        self._config()

    @property
    def bootstrap(self) -> str:
        """The address for clients, HOST:PORT. Raises RuntimeError before the first start."""
        if not self._port:
            raise RuntimeError("the gateway has no address before its first start: call start()")
        return f"127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start, and return when clients can connect. Raises StartFailed; RuntimeError if the gateway runs already."""
        if self._thread is not None:
            raise RuntimeError("the gateway runs already: call stop() first")
        started: Future[int] = Future()
        self._ended = Future()
        thread = threading.Thread(target=self._run, args=(started,), name="seqgate", daemon=True)
        thread.start()
        try:
            self._port = started.result()
        except BaseException:
            thread.join()
            raise
        self._thread = thread

    def stop(self) -> None:
        """Stop cleanly, and return when all data is written; a stopped gateway stays stopped. Raises what the stop raises."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._loop.call_soon_threadsafe(self._stopping.set)
        thread.join()
        self._ended.result()

    def _config(self) -> Config:
        settings = {"listeners": f"PLAINTEXT://127.0.0.1:{self._port}", **self._settings}
        return load_config(None, {}, [f"{name}={value}" for name, value in settings.items()])

    def _run(self, started: Future[int]) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve(started))
        except BaseException as error:  # noqa: BLE001 - raised again in `start`
            (self._ended if started.done() else started).set_exception(error)
        else:
            self._ended.set_result(None)

    async def _serve(self, started: Future[int]) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        gateway = Gateway(self._config())
        await gateway.start()
        started.set_result(gateway.services.node.bound["PLAINTEXT"].port)
        await self._stopping.wait()
        await gateway.stop()
