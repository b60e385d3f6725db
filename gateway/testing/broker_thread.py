"""A gateway in a thread of this process, with an event loop of its own. It can be ended in every way, and started again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import TypeVar

from gateway.config import Config
from gateway.config.metrics import METRICS_LISTENER
from gateway.gateway import Gateway
from gateway.testing.clock import ShiftedLoop
from gateway.testing.data_directory import empty
from gateway.testing.faulty_gateway import FaultyGateway
from gateway.testing.power import DurablePart

T = TypeVar("T")


class NotNow(RuntimeError):
    """A broker that runs can't do this, or one that does not run; the message says what to call first."""


class BrokerThread:
    """Runs one gateway after the other, with the same data and on the same ports. Call all methods from other threads than its own."""

    def __init__(self, config: Config, directory: Callable[[], Path]) -> None:
        """Take the settings, and what returns the data directory; both are used with the first start."""
        self.faulty = FaultyGateway(self.run_if_started)
        self.advertised = ""
        """The first address for clients, HOST:PORT; empty before the first start."""
        self.port = 0
        """The port of the first listener; 0 before the first start."""
        self._config = config
        self._directory = directory
        self._life = threading.RLock()
        self._is_killed = False
        self._durable: list[DurablePart] = []
        self._thread: threading.Thread | None = None
        self._ended: Future[None]
        self._loop: ShiftedLoop
        self._stopping: asyncio.Event

    @property
    def is_running(self) -> bool:
        """Whether the gateway is started."""
        return self._thread is not None

    def start(self) -> None:
        """Start, and return when clients can connect. Raises StartFailed; NotNow if the gateway runs already."""
        with self._life:
            if self._thread is not None:
                raise NotNow("the broker runs already: call stop() first")
            started: Future[None] = Future()
            self._ended = Future()
            thread = threading.Thread(target=self._run, args=(started,), name="seqgate", daemon=True)
            thread.start()
            try:
                started.result()
            except BaseException:
                thread.join()
                raise
            self._thread = thread

    def stop(self) -> None:
        """Stop cleanly, and return when all data is written; a stopped gateway stays stopped. Raises what the stop raises."""
        with self._life:
            thread, self._thread = self._thread, None
            if thread is None:
                return
            self._loop.call_soon_threadsafe(self._stopping.set)
            thread.join()
            self._ended.result()

    def kill(self) -> None:
        """End at once, as kill -9 does: what was written stays, connections break."""
        with self._life:
            if self._thread is not None:
                self._is_killed = True
                self.stop()

    def power_cut(self) -> None:
        """End at once, and lose every record that was not flushed. Raises NotNow if the gateway does not run."""
        with self._life:
            self._check_running()
            self.kill()
            for part in self._durable:
                part.lose_the_rest()

    def reset(self) -> None:
        """Start with an empty data directory, without faults, at the time of day, on the same ports."""
        with self._life:
            self.faulty.faults.reset()
            self.faulty.machine.disk.is_full = False
            self.kill()
            empty(self._directory())
            self.faulty.machine.ahead_s = 0.0
            self.start()

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run a coroutine in the gateway's event loop; return its result. Raises NotNow if the gateway does not run, or ends meanwhile."""

        async def begin() -> T:
            return await work()

        with self._life:
            self._check_running()
            asked = asyncio.run_coroutine_threadsafe(begin(), self._loop)
        try:
            return asked.result()
        except CancelledError:
            raise NotNow("the broker ended before it answered") from None

    def run_if_started(self, work: Callable[[], Awaitable[object]], *, is_optional: bool = False) -> object:
        """Run a coroutine as `run` does; run nothing and return None if the gateway is stopped and `is_optional`."""
        return None if is_optional and self._thread is None else self.run(work)

    def advance(self, by_s: float) -> None:
        """Move the clock forward by seconds; a stopped gateway starts at the later time."""
        with self._life:
            if self._thread is None:
                self.faulty.machine.ahead_s += by_s
            else:
                self.run(lambda: self.faulty.inside.advance(by_s))

    def _check_running(self) -> None:
        if self._thread is None:
            raise NotNow("the broker does not run: call start() first")

    # --- in the gateway's thread

    def _run(self, started: Future[None]) -> None:
        try:
            with asyncio.Runner(loop_factory=self._new_loop) as runner:
                runner.run(self._serve(started))
        except BaseException as error:  # noqa: BLE001 - raised again in `start` or `stop`
            (self._ended if started.done() else started).set_exception(error)
        else:
            self._ended.set_result(None)

    def _new_loop(self) -> ShiftedLoop:
        self._loop = self.faulty.new_loop()
        return self._loop

    async def _serve(self, started: Future[None]) -> None:
        self._stopping = asyncio.Event()
        # A copy: what clients alter while a gateway runs is in its data, and not in the settings of the next one.
        config = self._config.apart()
        config.choose("log.dirs", str(self._directory()))
        gateway = self.faulty.create(config)
        await gateway.start()
        self._keep_addresses(gateway)
        started.set_result(None)
        await self._stopping.wait()
        if self._is_killed:
            self._is_killed = False
            # Nothing is acknowledged between the look and the end, because there is no await.
            self._durable = self.faulty.inside.durable_parts()
            await gateway.abandon()
        else:
            self.faulty.let_go()
            await gateway.stop()

    def _keep_addresses(self, gateway: Gateway) -> None:
        """Let the next gateway listen on the ports that the system chose for this one."""
        node = gateway.services.node
        ports = [node.bound[each.name].port for each in self._config.listeners]
        shown = [
            f"{each.name}://{f'[{each.host}]' if ':' in each.host else each.host}:{port}"
            for each, port in zip(self._config.listeners, ports, strict=True)
        ]
        self._config.choose("listeners", tuple(shown))
        if gateway.metrics_address:
            self._config.choose(METRICS_LISTENER, gateway.metrics_address)
        self.port = ports[0]
        self.advertised = next(endpoint.shown for endpoint in node.brokers.advertised.values())
