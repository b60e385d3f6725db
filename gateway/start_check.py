"""Checks in a child what the start of a gateway needs, for the process that is to be replaced (`seqgate
restart`). The check changes no file.
"""

from __future__ import annotations

import asyncio
import errno
from importlib import import_module
from pathlib import Path

from seqgate.gateway.admin.restart.live import Passed
from seqgate.gateway.backends.backend import StartFailed, backend_of, preparing
from seqgate.gateway.config import Config, Listener
from seqgate.gateway.config.load import exposure_complaint
from seqgate.gateway.config.metrics import METRICS_LISTENER, OTLP_ENDPOINT
from seqgate.gateway.config.packages import missing_package
from seqgate.gateway.config.workers import workers_complaint
from seqgate.gateway.console_process import check_installed
from seqgate.gateway.running import (
    begin_logging,
    check_data_directory,
    check_listener,
    load_commands,
    real_data_directory,
)
from seqgate.gateway.running_workers import check_only_caches, listeners_by_address, worker_configs
from seqgate.gateway.runtime.loop.machine import Machine
from seqgate.gateway.server.sasl import prepared_mechanisms


def check_start(config: Config, passed: Passed, *, console: bool) -> None:
    """Check what a start needs. Raises StartFailed, and ImportError for a release that is half installed."""
    complaint = workers_complaint(config) or exposure_complaint(config) or missing_package(config)
    if complaint is not None:
        raise StartFailed(complaint)
    data_dir = real_data_directory(config)
    if passed.data_dir not in {"", data_dir}:
        raise StartFailed(
            f"log.dirs differs from the directory of the running gateway, {data_dir} instead of "
            f"{passed.data_dir}: stop and start instead"
        )
    check_data_directory(config)
    begin_logging(config)
    if console:
        check_installed()
    has_workers = config.int("seqgate.workers") > 1
    configs = worker_configs(config) if has_workers else {1: config}
    _check_listeners(listeners_by_address(configs), passed)
    is_bucket = config.optional_str("seqgate.cluster") is not None
    if has_workers and is_bucket:
        check_only_caches(Path(config.str("log.dirs")))
    asyncio.run(_check_parts(config, list(configs.values()) if is_bucket else [config]))
    _import_rest(config)


def _check_listeners(listeners: dict[str, Listener], passed: Passed) -> None:
    """Check that the addresses that are new can be listened on. A start closes the sockets of addresses that
    the settings do not name any more, so one of these may have the port of a new address.
    """
    closed = {address.rpartition(":")[2] for address in passed.sockets.keys() - listeners.keys()}
    for address, listener in listeners.items():
        if address in passed.sockets:
            continue
        try:
            check_listener(listener)
        except StartFailed as error:
            reason = error.__cause__
            is_taken = isinstance(reason, OSError) and reason.errno == errno.EADDRINUSE
            if not is_taken or str(listener.port) not in closed:
                raise


async def _check_parts(config: Config, backends: list[Config]) -> None:
    for each in backends:
        await backend_of(each, Machine()).check()
    for listener in config.listeners:
        protocol = config.protocol_of(listener.name)
        with preparing(listener.name):
            if protocol.has_tls:
                from seqgate.gateway.server.tls import TlsListener  # noqa: PLC0415 - as for the listener itself

                TlsListener(asyncio.get_running_loop(), config, listener.name)
            if protocol.has_logins:
                prepared_mechanisms(config, listener.name)


def _import_rest(config: Config) -> None:
    """Import what a start with these settings imports beside the parts that were checked."""
    load_commands()
    has_otlp = config.optional_str(OTLP_ENDPOINT) is not None
    if has_otlp or config.optional_str(METRICS_LISTENER) is not None:
        import_module("seqgate.gateway.metrics.listener")
    if has_otlp:
        import_module("seqgate.gateway.metrics.otlp")
    if config.str("seqgate.producer.id.store") == "redis":
        import_module("seqgate.pid_allocator.redis_store")
        import_module("seqgate.pid_allocator.seen_file")
