"""`seqgate repair`: finds damaged batches, and gives them up."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from seqgate.gateway.admin.damage.messages import Repair
from seqgate.gateway.admin.options import AsJson, ConfigFile, DataDir, asking
from seqgate.gateway.admin.printing import Column, count, counted, print_json, print_lines, print_table, shown


def repair(
    apply: Annotated[
        bool, typer.Option("--apply", help="Remove the damaged batches. Their records are then lost.")
    ] = False,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Check every stored batch of a stopped gateway; with --apply, give up those that are damaged.

    A gateway never deletes a damaged batch that was durable once: it keeps the bytes, and its consumers,
    compaction, and deduplication stop there. Without --apply this command only reports what it would give up.
    With --apply the damaged bytes leave the logs; other batches keep their offsets, consumers pass over the
    missing ones, and a transaction that was open there ends as the next marker of its producer says. Copy the
    data directory first if you may still want the bytes.

    Exits with 1 when something is damaged and was not given up.
    """
    with asking(config_file, data_dir, asks_gateway=False) as client:
        from seqgate.gateway.admin.damage import stopped  # noqa: PLC0415 - slow to import

        found = stopped.repair(
            client.data_dir, client.config, apply=apply, now_ms=time.time_ns() // 1_000_000
        )
    if as_json:
        print_json(found)
    else:
        _print(found)
    raise typer.Exit(1 if found.damaged and not found.given_up else 0)


def _print(found: Repair) -> None:
    if not found.damaged:
        print_lines("No stored batch is damaged.")
        return
    print_table(
        [
            Column("partition"),
            Column("offsets"),
            Column("file"),
            Column("position", number=True),
            Column("bytes", number=True),
            Column("reason"),
        ],
        [
            (
                shown(f"{row.topic}-{row.partition}"),
                f"{row.first_offset} to {row.end_offset - 1}",
                shown(row.file),
                count(row.position),
                count(row.size_bytes),
                row.reason,
            )
            for row in found.damaged
        ],
    )
    undecided = [row for row in found.damaged if row.undecided_from is not None]
    for row in undecided:
        print_lines(
            f"{shown(row.topic)}-{row.partition}: transactions from offset {row.undecided_from} on may have "
            "ended in the damaged bytes."
        )
    lost = counted(found.offsets, "offset")
    if found.given_up:
        print_lines(f"{lost} given up: at most so many records are lost.")
    else:
        print_lines(
            f"--apply would give up {lost}: at most so many records. Nothing was changed. Stop the gateway "
            "first."
        )
