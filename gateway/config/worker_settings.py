"""Settings of several workers of one command."""

from __future__ import annotations

from functools import partial
from typing import Final

from gateway.config.setting import whole_number

_WORKERS: Final = "Several workers"
_number = partial(whole_number, _WORKERS)
MOST_WORKERS: Final = 64

WORKER_SETTINGS = (
    _number(
        "seqgate.workers",
        1,
        "Processes that serve the data directory, or the bucket of `seqgate.cluster`, each on a core of its own. Worker 1 has `node.id` and the ports of `listeners` and "
        "`advertised.listeners`; each further worker has the next node id, and on each listener the next port. Clients see a cluster of as "
        "many brokers. With a bucket each has a cache of its own in the data directory. The flag is `--workers`.",
        minimum=1,
        maximum=MOST_WORKERS,
    ),
    _number(
        "seqgate.workers.timeout.ms",
        15_000,
        "Milliseconds without a sign of life after which a worker is killed and started again. Until then nobody serves its partitions: a "
        "worker that is only stopped still has them open.",
        minimum=1_000,
        maximum=3_600_000,
    ),
)
