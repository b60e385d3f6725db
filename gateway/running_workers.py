"""Runs and supervises several workers on a data directory or a bucket, from the settings to the exit."""

from __future__ import annotations

import gc
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from seqgate.gateway.admin.request import in_words
from seqgate.gateway.admin.restart.live import Passed, address_of, listeners_of
from seqgate.gateway.backends.backend import StartFailed, check_no_cache, opening
from seqgate.gateway.cluster.cache.local_caches import CACHES, cache_of
from seqgate.gateway.config import Config, Listener
from seqgate.gateway.config.load import exposure_complaint
from seqgate.gateway.config.workers import worker_config, workers_complaint
from seqgate.gateway.running import (
    Announce,
    Announcement,
    OwnProcess,
    bind,
    prepare_process,
    real_data_directory,
    replace_process,
    run_worker,
    warn_of_readers,
)
from seqgate.gateway.runtime.loop.clock import SystemClock
from seqgate.gateway.runtime.topics.brokers import Endpoint
from seqgate.gateway.workers.directory_storage import DirectoryStorage
from seqgate.gateway.workers.link import RestartOrdered
from seqgate.gateway.workers.shared_directory import SharedDirectory
from seqgate.gateway.workers.supervisor import Supervisor, WorkersFailed
from seqgate.gateway.workers.worker_process import BucketStorage, WorkerProcess, WorkerStorage
from seqgate.log import OF_A_FILE_SYSTEM, IncompatibleFormat, LogError, Storage

logger = logging.getLogger(__name__)


def run_workers(config: Config, announce: Announce, *, passed: Passed) -> None:
    """Run the workers until SIGINT or SIGTERM; `announce` once all serve. Raises StartFailed, also later."""
    complaint = workers_complaint(config) or exposure_complaint(config)
    if complaint is not None:
        raise StartFailed(complaint)
    prepare_process(config)
    root = Path(config.str("log.dirs"))
    is_bucket = config.optional_str("seqgate.cluster") is not None
    configs = worker_configs(config)
    process = _bind_all(configs, passed, real_data_directory(config))
    if is_bucket:
        check_only_caches(root)
        storage = BucketStorage(root, configs, partial(run_worker, process))
        ordered = _supervise(config, storage, configs, passed, announce)
        locks: dict[str, int] = {}
    else:
        ordered, locks = _run_on_directory(config, root, configs, process, announce)
    if ordered is not None:
        replace_process(
            Passed(restart=ordered.restart, paused_at_s=ordered.at_s, sockets=passed.sockets, locks=locks)
        )


def worker_configs(config: Config) -> dict[int, Config]:
    """Return the settings of all workers by their numbers. Each worker of a bucket has a cache of its own."""
    configs = {
        number: worker_config(config, number) for number in range(1, config.int("seqgate.workers") + 1)
    }
    if config.optional_str("seqgate.cluster") is not None:
        for number, own in configs.items():
            own.choose("log.dirs", str(cache_of(Path(config.str("log.dirs")), number)))
    return configs


def listeners_by_address(configs: Mapping[int, Config]) -> dict[str, Listener]:
    return {
        address_of(listener, number): listener
        for number, own in configs.items()
        for listener in listeners_of(own)
    }


def _bind_all(configs: Mapping[int, Config], passed: Passed, data_dir: str) -> OwnProcess:
    """Bind the listeners of all workers here, but for those whose sockets the process before has passed. A
    worker that is started again finds them as they are, and meanwhile connections wait. Raises StartFailed.
    """
    listeners = listeners_by_address(configs)
    passed.keep_sockets(listeners)
    for address, listener in listeners.items():
        if address not in passed.sockets:
            passed.sockets[address] = [bound.detach() for bound in bind(listener)]
    return OwnProcess(passed, list(listeners), data_dir)


def _run_on_directory(
    config: Config, root: Path, configs: Mapping[int, Config], process: OwnProcess, announce: Announce
) -> tuple[RestartOrdered | None, dict[str, int]]:
    """Run the workers; return a restart that is ordered, and the locks for the next process."""
    storage = Storage(kept_locks=process.passed.locks)
    with opening(root):
        check_no_cache(storage, config)
        shared = SharedDirectory(storage, root, config.int("node.id"), SystemClock().now_ms)
    storage.release_kept_locks()
    try:
        workers = DirectoryStorage(configs, shared, partial(run_worker, process))
        ordered = _supervise(config, workers, configs, process.passed, announce)
        return ordered, {} if ordered is None else storage.keep_locks()
    finally:
        _close(shared)


def _supervise(
    config: Config, storage: WorkerStorage, configs: Mapping[int, Config], passed: Passed, announce: Announce
) -> RestartOrdered | None:
    root = config.str("log.dirs")
    timeout_s = config.int("seqgate.workers.timeout.ms") / 1000
    gc.freeze()  # workers share the memory of what is not written to
    gc.enable()
    try:
        return Supervisor(storage, configs, timeout_s, passed.keep_sockets).run(
            lambda workers: _announce_workers(config, workers, announce)
        )
    except WorkersFailed as error:
        raise StartFailed(str(error)) from error
    except (LogError, IncompatibleFormat, OSError) as error:
        raise StartFailed(f"the data directory {root} can't be used: {in_words(error)}") from error


def check_only_caches(root: Path) -> None:
    """Check that the data directory has only the caches of workers, and what is at the root of a file system.
    Raises StartFailed.
    """
    found = sorted(path.name for path in root.glob("*") if path.name not in {CACHES, OF_A_FILE_SYSTEM})
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


def _announce_workers(config: Config, workers: Sequence[WorkerProcess], announce: Announce) -> None:
    told = [
        Endpoint(*place).shown
        for worker in workers
        if worker.ready is not None
        for place in worker.ready.endpoints.values()
    ]
    bound = [place for worker in workers if worker.ready is not None for place in worker.ready.bound]
    pids = ", ".join(f"worker {worker.number} {worker.pid}" for worker in workers)
    data = config.str("log.dirs")
    warn_of_readers(data)
    announce(Announcement(bound, told, data, f"; pids: {pids}"))
