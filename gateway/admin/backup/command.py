"""`seqgate backup`: makes, lists, verifies and restores backups."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import msgspec

from seqgate.gateway.admin.client import Client
from seqgate.gateway.admin.commands import Commands, Output, argument, asks, flag, option, stop
from seqgate.gateway.admin.options import Opened, gateway, parsed, reporting_errors
from seqgate.gateway.admin.request import Request
from seqgate.gateway.admin.tables import Column, count, counted, moment, shown, size_in_words, table
from seqgate.gateway.backup.pace import Pace

app = Commands("""Copy the data directory while the gateway runs, verify the copies, and restore them.

A backup has the state of one moment, for all partitions together: every record that was \
acknowledged before the command began is
in it. It is a directory of plain files.
""")

Target = Annotated[Path, argument("DIRECTORY", "The directory that has the backups.")]
Backup = Annotated[
    Path,
    argument("BACKUP", "A backup: DIRECTORY/NAME, as `create` prints it; of a DIRECTORY the newest one."),
]
Rate = Annotated[
    str | None,
    option("--rate", "SIZE", "Read at most so much per second: 512K, 50M, 1G. [default: no limit]"),
]


@app.command("create")
@asks(gateway)
def create(
    opened: Opened[Client],
    directory: Target,
    rate: Rate = None,
    full: bool = flag("--full", "Copy every file, also those that an earlier backup has already."),
    keep: int | None = option(
        "--keep",
        "N",
        "Afterwards keep only the N newest backups of this data directory. [default: all]",
        min=1,
    ),
) -> Output:
    """Make a backup in DIRECTORY, while the gateway runs or while it is stopped.

    The gateway gives its files second names in .backup of the data directory, as they are at one moment, and
    serves its clients meanwhile; this command then copies them. Files that the backup before has already are
    shared with it by hard links, so that a backup takes only the room of what changed. Deleted segments keep
    their room on the gateway's disk until the command ends. Several workers (--workers) all stand still for a
    moment, for 2 s at most.

    Refused for the cache of a bucket (--cluster).

    Exits with 1 when no backup was made.
    """
    bytes_per_s = parsed(size_bytes, rate, "--rate")
    with opened as client, _progress() as report:
        from seqgate.gateway.admin.backup import work  # noqa: PLC0415 - slow to import

        pace = Pace(bytes_per_s, lambda done: report(f"{size_in_words(done)} copied"))
        created = work.create(client.data_dir, StageBackupRequest(), directory, pace, is_full=full, keep=keep)
    row = created.backup
    shared = row.size_bytes - row.copied_bytes
    done = (
        f"{shown(row.path)}: {counted(row.partitions, 'partition')} as of {moment(row.taken_ms)}; "
        f"{size_in_words(row.copied_bytes)} copied, {size_in_words(shared)} shared with the backup before."
    )
    return Output(created, [done, *(f"{name} was removed." for name in created.removed)])


@app.command("list")
@asks(reporting_errors)
def list_backups(opened: Opened[None], directory: Target) -> Output:
    """List the backups in DIRECTORY, the oldest first, with those that were never finished.

    Reads the manifests only: `seqgate backup verify` reads everything.
    """
    with opened:
        from seqgate.gateway.admin.backup import work  # noqa: PLC0415 - slow to import

        rows = work.list_backups(directory)
    if not rows:
        return Output(rows, [f"{directory} has no backups."])
    complaints = [row.complaint for row in rows if row.complaint is not None]
    columns = "path taken_ms partitions files size_bytes copied_bytes note"
    return Output(rows, [table(BackupRow, rows, columns), *complaints])


@app.command("verify")
@asks(reporting_errors)
def verify(opened: Opened[None], backup: Backup, rate: Rate = None) -> Output:
    """Read a backup whole, and compare every file with the checksum that it had when it was copied.

    Exits with 1 when a file is missing or damaged, or when the backup was never finished.
    """
    bytes_per_s = parsed(size_bytes, rate, "--rate")
    with opened, _progress() as report:
        from seqgate.gateway.admin.backup import work  # noqa: PLC0415 - slow to import

        verified = work.verify(work.found_backup(backup), _paces(bytes_per_s, report, "verified"))
    row, damaged = verified.backup, verified.damaged
    if not damaged:
        sound = f"{counted(row.files, 'file')}, {size_in_words(row.size_bytes)}"
        return Output(verified, [f"{shown(row.path)} is sound: {sound}."])
    sentence = f"can't be restored: {counted(len(damaged), 'file')} damaged or missing. Use another backup."
    return Output(verified, [table(DamagedFile, damaged), f"{shown(row.path)} {sentence}"], code=1)


@app.command("restore")
@asks(reporting_errors)
def restore(
    opened: Opened[None],
    backup: Backup,
    target: Path | None = argument(
        "DATA_DIR", "The data directory to make: a new or an empty one.", default=None
    ),
    data_dir: Path | None = option("--data-dir", "DIRECTORY", "The same as DATA_DIR."),
    rate: Rate = None,
) -> Output:
    """Copy a backup into a new data directory, on which a gateway can start.

    Every file is compared with its checksum; a damaged backup restores nothing. The next producer id is moved
    far beyond those of the backup, so that no id is handed out twice. Restart all producers and consumers,
    and never run the original beside the restored gateway: both are the same cluster.

    Exits with 1 when nothing was restored.
    """
    bytes_per_s = parsed(size_bytes, rate, "--rate")
    if (target is None) == (data_dir is None):
        raise stop("name the data directory to make, once", code=2)
    made = data_dir or target or Path()
    with opened, _progress() as report:
        from seqgate.gateway.admin.backup import work  # noqa: PLC0415 - slow to import

        restored = work.restore(work.found_backup(backup), made, _paces(bytes_per_s, report, "restored"))
    row = restored.backup
    ids = (
        "Producer ids come from Redis, which must not be older than the backup."
        if restored.next_producer_id is None
        else f"New producers get ids from {restored.next_producer_id} on."
    )
    done = f"{restored.data_dir} has {counted(row.partitions, 'partition')} as of {moment(row.taken_ms)}."
    return Output(
        restored,
        [
            f"{done} {ids}",
            f"Start it: seqgate serve --data-dir {restored.data_dir}",
            "Restart all producers and consumers, and do not run the original beside it.",
        ],
    )


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows how far the command is, on a terminal only; the line is gone afterwards."""
    is_shown = sys.stderr.isatty()

    def report(text: str) -> None:
        if is_shown:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    try:
        yield report
    finally:
        report("")


def _paces(bytes_per_s: int | None, report: Callable[[str], None], done_word: str) -> Callable[[int], Pace]:
    """Return what makes the pace of a command that reads a whole backup, once the bytes of it are known."""

    def pace(total_bytes: int) -> Pace:
        total = size_in_words(total_bytes)
        return Pace(bytes_per_s, lambda done: report(f"{size_in_words(done)} of {total} {done_word}"))

    return pace


# Parses sizes that a person writes.

_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE: Final = re.compile(r"(\d+)([KMGT]?)(?:i?B)?", re.ASCII)


def size_bytes(text: str) -> int:
    """Return the bytes of `1048576`, `512K`, `50M`, `1G`, powers of 1,024. Raises ValueError, a sentence."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise ValueError(f"{text!r} is not a size; write bytes, or 512K, 50M or 1G")
    return int(match[1]) * _UNITS[match[2]]


# The request to stage a backup, and what the `seqgate backup` commands print with `--json`.


class StagedBackup(msgspec.Struct, frozen=True):
    """The staged files: the time (ms) of their state, and the number of partitions."""

    taken_ms: int
    partitions: int


class StageBackupRequest(Request[StagedBackup], tag="backup.stage"):
    """Give the files of the data directory second names in `.backup`, as they are now. The asker holds the
    lock `.backup.lock` until it has removed `.backup`.
    """


class BackupRow(msgspec.Struct, frozen=True):
    """A backup. Of `size_bytes` in all, `copied_bytes` were copied and the rest is shared with an earlier
    backup.

    `complaint` says why the backup can't be used; then the numbers are 0. `is_live`: a gateway ran at
    `taken_ms`.
    """

    path: Annotated[str, Column("backup")]
    taken_ms: Annotated[int, Column("state of", moment)] = -1
    is_live: bool = False
    cluster_id: str = ""
    directory_id: str = ""
    node_id: str = ""
    release: str = ""
    partitions: Annotated[int, Column("partitions", count)] = 0
    files: Annotated[int, Column("files", count)] = 0
    size_bytes: Annotated[int, Column("size", size_in_words)] = 0
    copied_bytes: Annotated[int, Column("copied", size_in_words)] = 0
    complaint: str | None = None

    @property
    def note(self) -> Annotated[str, Column("")]:
        """The remark on a backup that can't be used."""
        return "" if self.complaint is None else "not usable"


class CreatedBackup(msgspec.Struct, frozen=True):
    """A new backup, and the names of older ones that `--keep` removed."""

    backup: BackupRow
    removed: list[str]


class DamagedFile(msgspec.Struct, frozen=True):
    """A file that is not as the manifest says; its path is below the data of the backup."""

    path: Annotated[str, Column("file")]
    reason: Annotated[str, Column("reason")]


class Verified(msgspec.Struct, frozen=True):
    """A backup that was read whole, and what is damaged in it."""

    backup: BackupRow
    damaged: list[DamagedFile]


class Restored(msgspec.Struct, frozen=True):
    """A restored data directory. `next_producer_id` is the first id to hand out, None if Redis has them."""

    backup: BackupRow
    data_dir: str
    next_producer_id: int | None
