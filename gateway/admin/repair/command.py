"""`seqgate repair`: finds damaged batches, and gives them up."""

from __future__ import annotations

import time
from collections.abc import Iterator

from seqgate.gateway.admin.client import Client
from seqgate.gateway.admin.commands import Output, asks, flag
from seqgate.gateway.admin.options import Opened, gateway_directory
from seqgate.gateway.admin.repair.damage import DamagedRow, Repair
from seqgate.gateway.admin.tables import Block, counted, shown, table


@asks(gateway_directory)
def repair(
    opened: Opened[Client],
    apply: bool = flag("--apply", "Remove the damaged batches. Their records are then lost."),
) -> Output:
    """Check every stored batch of a stopped gateway; with --apply, give up those that are damaged.

    A gateway never deletes a damaged batch that was durable once: it keeps the bytes, and its consumers,
    compaction, and deduplication stop there. Without --apply this command only reports what it would give up.
    With --apply the damaged bytes leave the logs; other batches keep their offsets, consumers pass over the
    missing ones, and a transaction that was open there ends as the next marker of its producer says. Copy the
    data directory first if you may still want the bytes.

    Exits with 1 when something is damaged and was not given up.
    """
    with opened as client:
        from seqgate.gateway.admin.repair import stopped  # noqa: PLC0415 - slow to import

        found = stopped.repair(
            client.data_dir, client.read_config(), apply=apply, now_ms=time.time_ns() // 1_000_000
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
        yield (
            f"--apply would give up {lost}: at most so many records. Nothing was changed. Stop the gateway "
            "first."
        )
