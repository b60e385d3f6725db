"""`seqgate repair`: finds damaged batches, and gives them up."""

from __future__ import annotations

import time
from collections.abc import Iterator

from seqgate.gateway.admin.client import Client
from seqgate.gateway.admin.commands import AsJson, Output, asks, flag
from seqgate.gateway.admin.options import DryRun, Opened, carried_out, gateway_directory
from seqgate.gateway.admin.repair.damage import DamagedRow, Repair
from seqgate.gateway.admin.tables import Block, counted, shown, table


@asks(gateway_directory)
def repair(
    opened: Opened[Client],
    dry_run: DryRun = False,
    yes: bool = flag(
        "--yes --apply",
        "Give the damaged batches up without asking: their records are lost. --apply is the old spelling.",
    ),
    as_json: AsJson = False,
) -> Output:
    """Check every stored batch of a stopped gateway, and give up those that are damaged.

    A gateway never deletes a damaged batch that was durable once: it keeps the bytes, and its consumers,
    compaction, and deduplication stop there. This command shows what it would give up, and asks. With --json
    it never asks: without --yes it only reports. The damaged bytes then leave the logs; other batches keep
    their offsets, consumers pass over the missing ones, and a transaction that was open there ends as the
    next marker of its producer says. Copy the data directory first if you may still want the bytes.

    Exits with 1 when something is damaged and was not given up.
    """
    with opened as client:
        from seqgate.gateway.admin.repair import stopped  # noqa: PLC0415 - slow to import

        found = carried_out(
            lambda execute: stopped.repair(
                client.data_dir, client.read_config(), apply=execute, now_ms=time.time_ns() // 1_000_000
            ),
            _text,
            "Give them up?",
            yes=yes,
            dry_run=dry_run,
            as_json=as_json,
            is_needed=lambda planned: planned.damaged,
        )
    return Output(found, _text(found), code=1 if found.damaged and not found.given_up else 0)


def _text(found: Repair) -> Iterator[Block]:
    if not found.damaged:
        yield "No stored batch is damaged."
        return
    yield table(DamagedRow, found.damaged, "place range file position size_bytes reason")
    for row in found.damaged:
        if row.undecided_from is not None:
            yield (
                f"{shown(row.place)}: transactions from offset {row.undecided_from} on may have ended in the "
                "damaged bytes."
            )
    lost = counted(found.offsets, "offset")
    if found.given_up:
        yield f"{lost} given up: at most so many records are lost."
    else:
        yield f"{lost} would be given up: at most so many records. The gateway must be stopped."
