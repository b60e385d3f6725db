"""`seqgate status`: the state of a running gateway."""

from __future__ import annotations

from pathlib import Path

import typer

from gateway.admin.damage.messages import CutRow, DamagedRow
from gateway.admin.options import (
    AsJson,
    CommandConfig,
    ConfigFile,
    DataDir,
    OtherCluster,
    asking,
    needs_bootstrap,
    reaching,
)
from gateway.admin.printing import Column, count, counted, duration, moment, print_json, print_table
from gateway.admin.status.bucket_rows import bucket_rows, trouble_rows
from gateway.admin.status.cluster_table import cluster_rows
from gateway.admin.status.messages import Status, StatusRequest, WorkerRow
from gateway.admin.status.workers import joined_status


def status(
    bootstrap: OtherCluster = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the status of a running gateway, or of the cluster at --bootstrap.

    Exits with 1 when something is wrong: no gateway runs, one of several workers does not answer, producers are refused because the disk
    is short of room, a partition is offline, stored batches are damaged, sound records were cut off a log, the store of producer ids does
    not answer, the certificate of a listener expires within 14 days, producers are refused because the bucket lags behind, or the last
    round of uploads failed.

    Over the Kafka protocol these are wrong: no controller, a broker that does not answer, a log directory that is offline,
    partitions without a leader, and partitions whose replicas are not all in sync. Each broker answers within 5 s.
    """
    if bootstrap is not None:
        _show_cluster(bootstrap, command_config, config_file, data_dir, as_json=as_json)
        return
    needs_bootstrap(command_config)
    with asking(config_file, data_dir) as client:
        answer = joined_status(*client.ask_workers(StatusRequest()))
    if as_json:
        print_json(answer)
    else:
        print_table((Column("gateway"), Column("")), _rows(answer))
    raise typer.Exit(1 if _is_wrong(answer) else 0)


def _show_cluster(
    bootstrap: str,
    command_config: Path | None,
    config_file: Path | None,
    data_dir: Path | None,
    *,
    as_json: bool,
) -> None:
    with reaching(bootstrap, config_file, data_dir, command_config) as cluster:
        from gateway.admin.status import remote  # noqa: PLC0415 - slow to import

        answer = remote.cluster_status(cluster)
    if as_json:
        print_json(answer)
    else:
        print_table((Column("cluster"), Column("")), cluster_rows(answer))
    raise typer.Exit(0 if answer.is_well else 1)


def _is_wrong(answer: Status) -> bool:
    return bool(
        answer.is_disk_short
        or answer.offline_partitions
        or answer.damaged
        or answer.cut
        or any(certificate.warning for certificate in answer.certificates)
        or answer.producer_id_store_error is not None
        or answer.missing_workers
        or (answer.bucket is not None and trouble_rows(answer.bucket))
    )


def _rows(answer: Status) -> list[tuple[str, str]]:

    counters = answer.counters
    rows = [
        ("listening on", ", ".join(answer.bound.values())),
        *(
            [("tells clients", ", ".join(answer.listeners.values()))]
            if answer.bound != answer.listeners
            else []
        ),
        ("data directory", answer.data_dir),
        *(
            [("process", f"{answer.pid}, version {answer.version}, up for {duration(answer.uptime_ms)}")]
            if not answer.workers
            else [("version", answer.version), *(_worker(row) for row in answer.workers)]
        ),
        ("node, cluster", f"{answer.node_id}, {answer.cluster_id}"),
        (
            "topics, partitions",
            f"{count(answer.topics)} ({count(answer.internal_topics)} internal), {count(answer.partitions)}",
        ),
        ("connections", f"{count(answer.connections)} now, {count(answer.refused_connections)} refused"),
        ("requests", count(answer.requests)),
        *([("failed logins", count(answer.failed_logins))] if answer.failed_logins else []),
        *(
            (f"certificate of {row.listener}", f"valid until {moment(row.valid_until_ms)}")
            for row in answer.certificates
        ),
        *([] if answer.bucket is None else bucket_rows(answer.bucket, answer.uptime_ms)),
        ("flush rounds", f"{count(answer.flush_rounds)}, {count(answer.flush_failures)} failed"),
        (
            "producer ids left",
            f"{count(answer.producer_ids_left)} claimed ({answer.producer_id_store} store)",
        ),
        ("producers", f"{count(counters.remembered)} active"),
        (
            "batches",
            f"{count(counters.duplicates)} duplicates answered, {count(counters.rejections)} refused",
        ),
        (
            "producer names",
            f"{count(answer.names.remembered)} remembered, {count(answer.names.dropped_records)} records dropped as duplicates",
        ),
    ]
    if answer.is_disk_short:
        refused = counted(answer.disk_refusals, "batch", "batches")
        free = f"less than {count(answer.min_free_bytes)} bytes free"
        rows.append(("DISK", f"{free}: producers are refused, {refused} so far"))
    if answer.producer_id_store_error is not None:
        rows.append(("PRODUCER IDS", answer.producer_id_store_error))
    rows += [
        ("OFFLINE", f"{partition.topic}-{partition.partition}: {partition.reason}")
        for partition in answer.offline_partitions
    ]
    rows += [("CERTIFICATE", f"{row.listener}: {row.warning}") for row in answer.certificates if row.warning]
    rows += [] if answer.bucket is None else trouble_rows(answer.bucket)
    rows += [("WORKER", sentence) for sentence in answer.missing_workers]
    rows += [("DAMAGED", _damage(row)) for row in answer.damaged]
    rows += [("CUT OFF", _cut(row)) for row in answer.cut]
    return rows


def _worker(row: WorkerRow) -> tuple[str, str]:
    load = f"{count(row.partitions)} partitions, {count(row.connections)} connections, {count(row.requests)} requests"
    place = f"pid {row.pid}, on {', '.join(row.bound)}, up for {duration(row.uptime_ms)}"
    return f"worker on node {row.node_id}", f"{place}, leads {load}"


def _damage(row: DamagedRow) -> str:
    return (
        f"{row.topic}-{row.partition}: offsets {row.first_offset} to {row.end_offset - 1}, {row.size_bytes} bytes at position "
        f"{row.position} of {row.file}: {row.reason}"
    )


def _cut(row: CutRow) -> str:
    return (
        f"{row.topic}-{row.partition}: {counted(row.records, 'sound record')} behind a damaged batch, offsets {row.first_offset} to "
        f"{row.last_offset}; the bytes are kept in {row.file}; delete the file when you no longer need them"
    )
