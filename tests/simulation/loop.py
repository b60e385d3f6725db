"""An event loop in virtual time: nothing really waits, nothing runs in parallel, and the same seed gives the
same run.

When no callback is ready, time jumps to the next timer. Threads are timers: a function given to
`run_in_executor` runs in the loop, some virtual time later. Callbacks of a dead process are skipped.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from asyncio import base_events, events
from collections.abc import Callable, Iterator
from contextvars import Context
from random import Random
from typing import TYPE_CHECKING, Any

from tests.faults.disk_faults import PowerCut
from tests.simulation.process import Process, process_of

if TYPE_CHECKING:
    from tests.simulation.network import Network

RESOLUTION_S = 1e-7
THREAD_LATENCY_S = (0.00005, 0.002)
SLOW_THREAD_LATENCY_S = 0.3
SLOW_THREADS = 0.01


class Stuck(Exception):
    """No event can ever happen again: all tasks wait for each other."""


class _Handle(events.Handle):
    __slots__ = ("process",)
    process: Process

    def _run(self) -> None:
        if self.process.is_paused:
            self.process.deferred.append(self._run)
        elif self.process.alive and not self._cancelled:
            super()._run()


class _TimerHandle(events.TimerHandle):
    __slots__ = ("process",)
    process: Process

    def _run(self) -> None:
        if self.process.is_paused:
            self.process.deferred.append(self._run)
        elif self.process.alive and not self._cancelled:
            super()._run()


class _Selector:
    """The selector on which the base class waits."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> tuple[()]:
        if timeout is None:
            raise Stuck
        self._loop.pass_time(timeout)
        return ()


class SimulatedLoop(base_events.BaseEventLoop):
    """A loop in virtual time. `network` accepts connections; `chance` decides how long threads take."""

    network: Network

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self.chance = chance
        self.slow_threads = SLOW_THREADS
        """The share of thread turns that come late, and the longest delay."""
        self.slow_thread_latency_s = SLOW_THREAD_LATENCY_S
        self.unhandled: list[str] = []
        """Errors that no code of a living process has handled."""
        self.is_in_thread = False
        """Whether the running callback stands for a thread."""
        self._now_s = 0.0
        self._selector = _Selector(self)
        self._clock_resolution = RESOLUTION_S
        self.set_exception_handler(SimulatedLoop._note_unhandled)

    @property
    def now_s(self) -> float:
        """The loop's own time, which no process's clock shows exactly."""
        return self._now_s

    def time(self) -> float:
        """Return the time as the clock of the running process shows it."""
        clock = process_of().clock
        return self._now_s if clock is None else clock.read(self._now_s)

    def pass_time(self, seconds: float) -> None:
        """Let the current callback take this time, in which all others wait."""
        self._now_s += max(0.0, seconds)

    @staticmethod
    def _note_unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        assert isinstance(loop, SimulatedLoop)
        exception = context.get("exception")
        work = context.get("future") or context.get("task")
        if isinstance(exception, PowerCut):
            return
        loop.unhandled.append(f"{context.get('message')}: {exception!r} ({work!r})")

    # --- callbacks, each of which belongs to a process

    def _call_soon(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> _Handle:
        handle = _Handle(callback, args, self, context)
        handle.process = process_of(handle._context)  # type: ignore[attr-defined]
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _TimerHandle:
        """Run a callback when the clock of the running process shows `when`."""
        clock = process_of().clock
        at_s = when if clock is None else max(clock.loop_s(when), self._now_s) + RESOLUTION_S
        return self.call_at_loop_s(at_s, callback, *args, context=context)

    def call_at_loop_s(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _TimerHandle:
        """Run a callback at a time of the loop."""
        timer = _TimerHandle(when, callback, args, self, context)
        timer.process = process_of(timer._context)  # type: ignore[attr-defined]
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def create_task(  # type: ignore[override]
        self, coro: Any, *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = super().create_task(coro, name=name, context=context)
        process_of(context).has_begun(task)
        return task

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _TimerHandle:
        clock = process_of(context).clock
        # Rounded, a drifting clock may show a little less when the timer fires: then time must have passed.
        delay_s = delay if clock is None else delay / clock.rate + RESOLUTION_S
        return self.call_at_loop_s(self._now_s + delay_s, callback, *args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _TimerHandle:
        return self.call_later(self.thread_latency_s(), callback, *args, context=context)

    # --- threads

    @contextlib.contextmanager
    def in_thread(self) -> Iterator[None]:
        """Let the code inside of the `with` block stand for a thread."""
        before, self.is_in_thread = self.is_in_thread, True
        try:
            yield
        finally:
            self.is_in_thread = before

    def thread_latency_s(self) -> float:
        """Return the time until a thread, or the loop, gets its turn."""
        if self.chance.random() < self.slow_threads:
            return self.chance.uniform(0, self.slow_thread_latency_s)
        return self.chance.uniform(*THREAD_LATENCY_S)

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        done = self.create_future()

        def finish(set_outcome: Callable[[Any], None], outcome: Any) -> None:
            if not done.done():
                set_outcome(outcome)

        def work() -> None:
            try:
                with self.in_thread():
                    result = func(*args)
            except Exception as error:
                self.call_soon_threadsafe(finish, done.set_exception, error)
            else:
                self.call_soon_threadsafe(finish, done.set_result, result)

        self.call_later(self.thread_latency_s(), work)
        return done

    # --- connections

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str | None = None, port: int | None = None, **_: Any
    ) -> Any:
        return self.network.listen(protocol_factory, host or "0.0.0.0", port or 0)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str | None = None, port: int | None = None, **_: Any
    ) -> Any:
        assert host is not None
        assert port is not None
        return await self.network.connect(protocol_factory, host, port)

    async def create_unix_server(self, *_: Any, **__: Any) -> Any:  # type: ignore[override]
        raise OSError("the simulated loop has no local sockets")

    # --- methods that the base class requires

    def _process_events(self, event_list: object) -> None:
        pass

    def _write_to_self(self) -> None:
        pass
