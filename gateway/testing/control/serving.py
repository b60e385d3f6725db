"""A broker that programs in other processes control: what `seqgate serve --test-control` runs.

The broker has a thread and an event loop of its own, as that of `Broker`; so it can be stopped, killed and reset while the test control
answers in the main thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from gateway.admin.system_errors import in_words
from gateway.config import Config
from gateway.console_process import check_installed
from gateway.homes.home import StartFailed
from gateway.running import (
    announce,
    check_listener,
    console_of,
    prepare_process,
    warn_of_readers,
)
from gateway.stop_signals import signals_taken
from gateway.testing.broker_thread import BrokerThread
from gateway.testing.control.listener import ControlListener
from gateway.testing.data_directory import DataDirectory

logger = logging.getLogger(__name__)


def serve_under_test(
    config: Config, address: str, *, guide: bool = False, console: bool = False, exit_with: int | None = None
) -> None:
    """Run a broker and its test control at HOST:PORT until SIGINT or SIGTERM, or until the process with the id `exit_with` has ended.

    Where no setting names a data directory, the data is in a temporary one. Raises StartFailed.
    """
    prepare_process(config)
    for listener in config.listeners:
        check_listener(listener)
    if console:
        check_installed()
    data = DataDirectory(Path(config.str("log.dirs")) if config.is_set("log.dirs") else None)
    try:
        _ = data.path
    except OSError as error:
        raise StartFailed(f"can't make a temporary data directory: {in_words(error)}") from error
    try:
        broker = BrokerThread(config, lambda: data.path)
        asyncio.run(_serve(broker, address, guide=guide, console=console, exit_with=exit_with))
    finally:
        data.remove_temporary()


async def _serve(
    broker: BrokerThread, address: str, *, guide: bool, console: bool, exit_with: int | None
) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    with signals_taken(lambda: loop.call_soon_threadsafe(stopping.set)), _ended(exit_with, stopping.set):
        await asyncio.to_thread(broker.start)
        try:
            control = await _begin_control(broker, address)
            gateway = broker.faulty.gateway
            warn_of_readers(gateway.config.str("log.dirs"))
            gc.freeze()
            gc.enable()
            announce(gateway, guide)
            beside = await console_of(gateway) if console else None
            await stopping.wait()
            logger.info("stopping")
            if beside is not None:
                await beside.stop()
            await control.stop()
        finally:
            await asyncio.to_thread(broker.stop)


async def _begin_control(broker: BrokerThread, address: str) -> ControlListener:
    """Start the test control and print its address. Raises StartFailed."""
    control = ControlListener(broker)
    try:
        shown = await control.start(address)
    except OSError as error:
        raise StartFailed(f"can't listen for test control on {address}: {in_words(error)}") from error
    print(f"test control on http://{shown}", flush=True)
    return control


@contextlib.contextmanager
def _ended(process: int | None, stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` in the event loop when the process with this id has ended. Raises StartFailed if there is none."""
    if process is None:
        yield
        return
    try:
        handle = os.pidfd_open(process)
    except OSError as error:
        raise StartFailed(f"--exit-with {process}: {in_words(error)}") from error
    loop = asyncio.get_running_loop()

    def stop_once() -> None:
        loop.remove_reader(handle)
        stop()

    loop.add_reader(handle, stop_once)
    try:
        yield
    finally:
        loop.remove_reader(handle)
        os.close(handle)
