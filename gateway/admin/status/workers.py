"""The status of several workers as that of one gateway."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

import msgspec

from gateway.admin.every_worker import summed
from gateway.admin.status.messages import Status, WorkerRow
from gateway.admin.status.worker_buckets import joined_bucket

_SUMMED: Final = (
    "disk_refusals",
    "connections",
    "refused_connections",
    "requests",
    "failed_logins",
    "flush_rounds",
    "flush_failures",
    "producer_ids_left",
    "counters",
    "names",
)


def joined_status(answers: Sequence[Status], missing: Sequence[str] = ()) -> Status:
    """Return one status: what the workers count is summed, and each worker has a row. That of a single process stays as it is.

    `missing` has a sentence about each worker that gave no answer.
    """
    first = answers[0]
    if len(answers) == 1 and not missing:
        return first
    certificates = {row.listener: row for answer in answers for row in answer.certificates}
    return msgspec.structs.replace(
        first,
        **{name: summed([getattr(answer, name) for answer in answers]) for name in _SUMMED},
        listeners=_addresses([answer.listeners for answer in answers]),
        bound=_addresses([answer.bound for answer in answers]),
        data_dir=os.path.commonpath([answer.data_dir for answer in answers]),
        uptime_ms=max(answer.uptime_ms for answer in answers),
        is_disk_short=any(answer.is_disk_short for answer in answers),
        offline_partitions=[row for answer in answers for row in answer.offline_partitions],
        damaged=[row for answer in answers for row in answer.damaged],
        cut=[row for answer in answers for row in answer.cut],
        certificates=list(certificates.values()),
        bucket=joined_bucket([answer.bucket for answer in answers]),
        producer_id_store_error=next(
            (answer.producer_id_store_error for answer in answers if answer.producer_id_store_error), None
        ),
        workers=[
            WorkerRow(
                answer.node_id,
                answer.pid,
                list(answer.bound.values()),
                answer.uptime_ms,
                answer.led_partitions,
                answer.connections,
                answer.requests,
            )
            for answer in answers
        ],
        missing_workers=list(missing),
    )


def _addresses(of_workers: Sequence[dict[str, str]]) -> dict[str, str]:
    return {name: ", ".join(addresses[name] for addresses in of_workers) for name in of_workers[0]}
