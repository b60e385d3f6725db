"""Runs and supervises several workers on a data directory or a bucket, from the settings to the exit."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from seqgate.gateway.admin.request import in_words
from seqgate.gateway.backends.backend import StartFailed, check_no_cache
from seqgate.gateway.cluster.cache.worker_caches import CACHES, cache_of
from seqgate.gateway.config import Config
from seqgate.gateway.config.load import exposure_complaint
from seqgate.gateway.config.workers import worker_config, workers_complaint
from seqgate.gateway.metadata.records import UnknownRecordError
from seqgate.gateway.running import (
    check_listener,
    prepare_process,
    print_guide,
    run_gateway,
    run_worker,
    warn_of_readers,
)
from seqgate.gateway.runtime.loop.clock import SystemClock
from seqgate.gateway.runtime.topics.brokers import Endpoint
from seqgate.gateway.workers.directory_storage import DirectoryStorage
from seqgate.gateway.workers.shared_directory import SharedDirectory
from seqgate.gateway.workers.supervisor import Supervisor, WorkersFailed
from seqgate.gateway.workers.worker_process import BucketStorage, WorkerProcess, WorkerStorage
from seqgate.log import DirectoryLocked, IncompatibleFormat, LogError, Storage

logger = logging.getLogger(__name__)


def run_workers(config: Config, *, guide: bool = False) -> None:
    """Run the workers until SIGINT or SIGTERM. Raises StartFailed, also when they can't go on."""
    complaint = workers_complaint(config) or exposure_complaint(config)
    if complaint is not None:
        raise StartFailed(complaint)
    prepare_process(config)
    root = Path(config.str("log.dirs"))
    is_bucket = config.optional_str("seqgate.cluster") is not None
    configs = {
        number: worker_config(config, number) for number in range(1, config.int("seqgate.workers") + 1)
    }
    for number, own in configs.items():
        if is_bucket:
            own.choose("log.dirs", str(cache_of(root, number)))
        for listener in own.listeners:
            check_listener(listener)
    if is_bucket:
        _check_only_caches(root)
        _supervise(config, BucketStorage(root, configs, run_gateway), configs, guide=guide)
    else:
        _run_on_directory(config, root, configs, guide=guide)


def _run_on_directory(config: Config, root: Path, configs: Mapping[int, Config], *, guide: bool) -> None:
    storage = Storage()
    try:
        check_no_cache(storage, config)
        shared = SharedDirectory(storage, root, config.int("node.id"), SystemClock().now_ms)
    except DirectoryLocked as error:
        raise StartFailed(str(error)) from error
    except (LogError, IncompatibleFormat, OSError, UnknownRecordError) as error:
        raise StartFailed(f"the data directory {root} can't be opened: {in_words(error)}") from error
    try:
        _supervise(config, DirectoryStorage(configs, shared, run_worker), configs, guide=guide)
    finally:
        _close(shared)


def _supervise(config: Config, storage: WorkerStorage, configs: Mapping[int, Config], *, guide: bool) -> None:
    root = config.str("log.dirs")
    timeout_s = config.int("seqgate.workers.timeout.ms") / 1000
    gc.freeze()  # workers share the memory of what is not written to
    gc.enable()
    try:
        Supervisor(storage, configs, timeout_s).run(
            lambda workers: _announce_workers(config, workers, guide=guide)
        )
    except WorkersFailed as error:
        raise StartFailed(str(error)) from error
    except (LogError, IncompatibleFormat, OSError) as error:
        raise StartFailed(f"the data directory {root} can't be used: {in_words(error)}") from error


def _check_only_caches(root: Path) -> None:
    """Check that the data directory has only the caches of workers. Raises StartFailed."""
    found = sorted(path.name for path in root.glob("*") if path.name != CACHES)
    if found:
        raise StartFailed(
            f"the data directory {root} holds {found[0]}, and several workers of a bucket have their caches "
            f"in {root / CACHES}; name an empty directory"
        )


def _close(shared: SharedDirectory) -> None:
    try:
        shared.close()
    except (LogError, IncompatibleFormat, OSError) as error:
        logger.warning("the data directory can't be made whole, the next start does that: %s", error)


def _announce_workers(config: Config, workers: Sequence[WorkerProcess], *, guide: bool) -> None:
    told = [
        Endpoint(*place).shown
        for worker in workers
        if worker.ready is not None
        for place in worker.ready.endpoints.values()
    ]
    bound = [place for worker in workers if worker.ready is not None for place in worker.ready.bound]
    tells = "" if told == bound else f", tells clients {', '.join(told)}"
    pids = ", ".join(f"worker {worker.number} {worker.pid}" for worker in workers)
    data = config.str("log.dirs")
    warn_of_readers(data)
    print(
        f"seqgate ready on {', '.join(bound)}{tells} (data in {data}, pid {os.getpid()}; pids: {pids})",
        flush=True,
    )
    if guide:
        print_guide(told[0])
