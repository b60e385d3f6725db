"""`seqgate repair`: finds damaged batches, and gives them up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Final, Self

import msgspec

from seqgate.gateway.admin.client import Client
from seqgate.gateway.admin.commands import Output, asks, flag
from seqgate.gateway.admin.options import Consent, Opened, consent_by, gateway_directory
from seqgate.gateway.admin.request import ControlError, in_words
from seqgate.gateway.admin.tables import Block, Column, count, counted, shown, table

if TYPE_CHECKING:
    from pathlib import Path

    from seqgate.gateway.config import Config
    from seqgate.log import CutBytes, DamagedRange, Storage
    from seqgate.log.stopped import DamagedPartition

# The output of `seqgate repair --json`, and the damage in `seqgate status --json`.


class DamagedRow(msgspec.Struct, frozen=True):
    """A damaged run of bytes of a partition. `end_offset` is exclusive; at most `offsets` records were in it.

    `file` is a path in the data directory. `undecided_from` is the first offset of the earliest transaction
    that may have ended in the damaged bytes, None without one.
    """

    topic: str
    partition: int
    first_offset: int
    end_offset: int
    offsets: int
    file: Annotated[str, Column("file")]
    position: Annotated[int, Column("position", count)]
    size_bytes: Annotated[int, Column("bytes", count)]
    reason: Annotated[str, Column("reason")]
    undecided_from: int | None

    @classmethod
    def of(cls, topic: str, partition: int, found: DamagedRange) -> Self:
        """Return the row of a damaged range."""
        return cls(
            topic,
            partition,
            found.first_offset,
            found.end_offset,
            found.offsets,
            f"{topic}-{partition}/{found.segment_base_offset:020d}.log",
            found.position,
            found.size_bytes,
            found.reason,
            None if found.undecided_from < 0 else found.undecided_from,
        )

    @property
    def place(self) -> Annotated[str, Column("partition")]:
        """The partition."""
        return f"{self.topic}-{self.partition}"

    @property
    def range(self) -> Annotated[str, Column("offsets")]:
        """The offsets, both inclusive."""
        return f"{self.first_offset} to {self.end_offset - 1}"


class CutRow(msgspec.Struct, frozen=True):
    """Bytes that a start cut off the end of a partition, because a batch was damaged that was not known to be
    durable, although sound batches followed. `file`, a path in the data directory, keeps the bytes until
    somebody deletes the file.
    """

    topic: str
    partition: int
    records: int
    first_offset: int
    last_offset: int
    file: str
    size_bytes: int

    @classmethod
    def of(cls, topic: str, partition: int, found: CutBytes) -> Self:
        """Return the row of a file of cut bytes."""
        file = f"{topic}-{partition}/{found.file_name}"
        first, last = found.first_offset, found.last_offset
        return cls(topic, partition, found.records, first, last, file, found.size_bytes)

    @property
    def sentence(self) -> str:
        """The records, and the file that keeps them."""
        return (
            f"{self.topic}-{self.partition}: {counted(self.records, 'sound record')} behind a damaged batch, "
            f"offsets {self.first_offset} to {self.last_offset}; the bytes are kept in {self.file}; delete "
            "the file when you no longer need them"
        )


class Repair(msgspec.Struct, frozen=True):
    """The damage of a data directory. `given_up` says that the damaged bytes were removed from the logs;
    `cut` are the bytes that the recovery before that has cut off.
    """

    damaged: list[DamagedRow]
    offsets: int
    given_up: bool
    cut: list[CutRow] = []


# The command.

_GIVE_UP: Final = flag(
    "--yes --apply",
    "Give the damaged batches up without asking: their records are lost. --apply is the old spelling.",
)


@asks(gateway_directory)
def repair(opened: Opened[Client], consent: Annotated[Consent, consent_by(_GIVE_UP)]) -> Output:
    """Check every durable batch in a data directory, and give up those that are damaged.

    A gateway never deletes a damaged batch that was durable once: it keeps the bytes, and its consumers,
    compaction, and deduplication stop there. This command shows what it would give up, and asks. With --json
    it never asks: without --yes it only reports. The damaged bytes then leave the logs; other batches keep
    their offsets, consumers pass over the missing ones, and a transaction that was open there ends as the
    next marker of its producer says. Copy the data directory first if you may still want the bytes.

    Giving up needs a stopped gateway. It recovers the logs first, as a start does: a damaged batch at the end
    of a log that may never have been durable is cut off, with what follows it. A file keeps these bytes if
    sound batches are among them, and the command names the file. The report checks no such batch.

    Exits with 1 when something is damaged and was not given up.
    """
    with opened as client:
        found = consent.plan_ask_and_do(
            lambda execute: repair_directory(
                client.data_dir, client.read_config(), apply=execute, now_ms=time.time_ns() // 1_000_000
            ),
            _text,
            "Give them up?",
            is_needed=lambda planned: planned.damaged,
        )
    return Output(found, _text(found), code=1 if found.damaged and not found.given_up else 0)


def _text(found: Repair) -> Iterator[Block]:
    for cut in found.cut:
        yield f"Cut off: {shown(cut.sentence)}."
    if not found.damaged:
        yield "No durable batch is damaged."
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


# In a data directory that no gateway has open. Finding damage needs no lock and changes nothing. Giving it up
# takes the lock and recovers the logs first, as a start of the gateway does, and the changed logs afterwards:
# the directory is left cleanly stopped.


def repair_directory(data_dir: Path, config: Config, *, apply: bool, now_ms: int) -> Repair:
    """Return the damage below the recovery points; with `apply` cut it from the logs. Raises ControlError."""
    from seqgate.gateway.admin.stored import check_is_no_cache, existing_metadata_directory, locked  # noqa: PLC0415
    from seqgate.log import IncompatibleFormat, LocalDurability, LogError, Storage  # noqa: PLC0415
    from seqgate.log.stopped import forget_stops, give_up, scan_directory  # noqa: PLC0415

    existing_metadata_directory(data_dir)
    storage = Storage()
    try:
        if not apply:
            return _described(scan_directory(storage, str(data_dir)), given_up=False)
        check_is_no_cache(
            storage, data_dir, "which has the records; remove it, and a start with --cluster builds it again"
        )
        earlier = set(data_dir.glob("*/*.cut"))
        known_cut = _recover(storage, data_dir, config, lambda: now_ms)
        with locked(storage, data_dir):
            damaged = list(scan_directory(storage, str(data_dir)))
            names = {partition.name for partition in damaged}
            forget_stops(storage, LocalDurability(storage), str(data_dir), names)
            for partition in damaged:
                give_up(storage, str(data_dir), partition, now_ms)
        if damaged:
            _recover(storage, data_dir, config, lambda: now_ms)
        cut = [row for row in known_cut if data_dir / row.file not in earlier]
        return msgspec.structs.replace(_described(damaged, given_up=True), cut=cut)
    except (IncompatibleFormat, LogError, OSError) as error:
        raise ControlError(f"{data_dir} can't be repaired: {in_words(error)}") from error


def _recover(storage: Storage, data_dir: Path, config: Config, now_ms: Callable[[], int]) -> list[CutRow]:
    """Recover the logs as a start does, and stop with all durable. Return all bytes that were ever cut off.
    Raises ControlError, LogError, OSError.
    """
    from seqgate.gateway.runtime.topics.topic_lifecycle import topic_policy  # noqa: PLC0415 - slow to import
    from seqgate.gateway.workers.shared_directory import recover_whole  # noqa: PLC0415
    from seqgate.log import DirectoryLocked, LogDirectory  # noqa: PLC0415

    try:
        recover_whole(storage, data_dir, config.int("node.id"), now_ms, for_repair=True)
        directory = LogDirectory.open(
            data_dir,
            storage,
            node_id=config.int("node.id"),
            now_ms=now_ms,
            config=topic_policy(config, {}).log_config,
        )
    except DirectoryLocked as error:
        raise ControlError(f"a gateway runs on {data_dir}; stop it first") from error
    cut = [CutRow.of(*found) for found in directory.known_cut_bytes()]
    directory.close(clean=True)
    return cut


def _described(damaged: Iterable[DamagedPartition], *, given_up: bool) -> Repair:
    from seqgate.log import parse_partition_directory  # noqa: PLC0415 - slow to import

    rows = []
    for partition in damaged:
        key = parse_partition_directory(partition.name)
        assert key is not None
        rows += [DamagedRow.of(*key, found) for found in partition.ranges]
    return Repair(rows, sum(row.offsets for row in rows), given_up)
