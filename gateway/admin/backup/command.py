"""`seqgate backup`: makes, lists, verifies and restores backups.

The commands with their rows, and all that they do for a data directory; `bucket.py` makes and restores
backups of a bucket. There one gateway is asked `backup.cut`, which holds all of them at one moment.

`Repository.manifests` in `backup/repository.py` finds the backups, complete and unfinished ones.

A verification and a restore refuse a backup that is unfinished, damaged or of a newer release
(`manifest_of_complete` in `backup/repository.py`). A restore also refuses a directory that is not empty
(`restore_files`), and an address that holds an object (`BucketRestore` in `bucket.py`) or another's
unfinished import (`begin_or_resume_import`).
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec

from seqgate import __version__
from seqgate.gateway.admin.client import Client, ask
from seqgate.gateway.admin.cluster.bucket import Address, Bucket, BucketTimeout, Settings, bucket_settings
from seqgate.gateway.admin.commands import Commands, Output, argument, asks, flag, option, stop
from seqgate.gateway.admin.options import (
    CommandConfig,
    ConfigFile,
    DataDir,
    Opened,
    asking,
    cluster,
    needs_bootstrap,
    parsed_or_exit_2,
    reporting_errors,
    timeout_of,
)
from seqgate.gateway.admin.request import ControlError, NotRunning, Request, in_words
from seqgate.gateway.admin.tables import Column, count, counted, moment, shown, table
from seqgate.gateway.admin.which_cluster import bootstrap_of
from seqgate.gateway.backup.pace import Pace
from seqgate.gateway.sizes import size_in_words

if TYPE_CHECKING:
    from seqgate.gateway.admin.operation import LiveGateway
    from seqgate.gateway.backup.repository import BackupManifest, CopiedFile, Created, Repository, WantedFile
    from seqgate.gateway.config import Config
    from seqgate.log import Storage
    from seqgate.log.staging import FileEntry, Staged

app = Commands("""Copy a data directory or a bucket while gateways run, verify the copies, and restore them.

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


Timeout = Annotated[
    int | None,
    timeout_of("from a gateway 600, with --cluster 40; for a bucket the command waits until it answers"),
]


class Source(NamedTuple):
    """The data directory of a gateway, or the bucket, that a backup copies."""

    client: Client
    bucket: Bucket | None
    ask: Callable[[Request[Any]], Any]
    """Asks a gateway of the bucket. Raises ControlError."""
    timeout_s: int | None


@contextmanager
def gateway_or_bucket(
    address: Address = None,
    settings: Settings = None,
    bootstrap: Annotated[
        str | None,
        option(
            "--bootstrap",
            "HOST:PORT",
            "With --cluster: any gateway of the cluster. [default: the gateway that runs on --data-dir]",
        ),
    ] = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    timeout_s: Timeout = None,
) -> Iterator[Source]:
    """Yield the source that the options name; an error ends the command with its sentence."""
    overrides = [*(settings or ()), *([] if address is None else [f"seqgate.cluster={address}"])]
    if overrides and data_dir is not None:
        overrides.append(f"log.dirs={data_dir}")
    with asking(config_file, data_dir, overrides, timeout_s=timeout_s) as client:
        config = client.read_config() if overrides or config_file is not None else None
        if config is None or config.optional_str("seqgate.cluster") is None:
            if settings is not None or bootstrap is not None or command_config is not None:
                raise stop("--set, --bootstrap and --command-config need --cluster", code=2)
            yield Source(client, None, client.ask, timeout_s)
            return
        copied = Bucket(config, timeout_s)
        bootstrap = bootstrap_of(bootstrap, data_dir, config_file)
        if bootstrap is None:
            needs_bootstrap(command_config)
            yield Source(client, copied, client.ask, timeout_s)
            return
        from seqgate.gateway.admin.remote.operations import told_by  # noqa: PLC0415 - slow to import

        def ask_remote(request: Request[Any]) -> Any:
            with cluster(bootstrap, command_config, timeout_s=timeout_s) as reached:
                return told_by(reached.reached, request)

        yield Source(client, copied, ask_remote, timeout_s)


@app.command("create")
@asks(gateway_or_bucket)
def create(
    opened: Opened[Source],
    directory: Target,
    rate: Rate = None,
    full: bool = flag("--full", "Copy every file, also those that an earlier backup has already."),
    keep: int | None = option(
        "--keep",
        "N",
        "Afterwards keep only the N newest backups of this data directory, or bucket. [default: all]",
        min=1,
    ),
) -> Output:
    """Make a backup in DIRECTORY, while the gateway runs or while it is stopped.

    The gateway gives its files second names in .backup of the data directory, as they are at one moment, and
    serves its clients meanwhile; this command then copies them. Files that the backup before has already are
    shared with it by hard links, so that a backup takes only the room of what changed. Deleted segments keep
    their room on the gateway's disk until the command ends. Several workers (--workers) all stand still for a
    moment, for 2 s at most.

    With --cluster, copies the bucket as it is at one moment of all gateways: they stop acknowledging for some
    milliseconds, and delete nothing from the bucket until the command ends. The command asks the gateway at
    --bootstrap, or the one that runs on --data-dir; where all gateways were stopped, it asks none.

    Exits with 1 when no backup was made.
    """
    bytes_per_s = parsed_or_exit_2(size_bytes, rate, "--rate")
    with opened as source, _progress() as report:
        pace = Pace(bytes_per_s, lambda done: report(f"{size_in_words(done)} copied"))
        if source.bucket is not None:
            from seqgate.gateway.admin.backup import bucket  # noqa: PLC0415 - slow to import

            created = bucket.create(source.bucket, source.ask, directory, pace, is_full=full, keep=keep)
        else:
            data_dir = source.client.data_dir
            created = create_backup(
                data_dir, directory, pace, is_full=full, keep=keep, timeout_s=source.timeout_s
            )
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
        rows = backups_in(directory)
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
    bytes_per_s = parsed_or_exit_2(size_bytes, rate, "--rate")
    with opened, _progress() as report:
        verified = verify_backup(found_backup(backup), _paces(bytes_per_s, report, "verified"))
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
    address: Address = None,
    settings: Settings = None,
    config_file: ConfigFile = None,
    timeout_s: BucketTimeout = None,
    rate: Rate = None,
) -> Output:
    """Copy a backup into a new data directory, on which a gateway can start; or with --cluster the backup of
    a bucket into an address that holds nothing.

    Every file is compared with its checksum; a damaged backup restores nothing. The next producer id is moved
    far beyond those of the backup, so that no id is handed out twice. Restart all producers and consumers,
    and never run the original beside the restored gateway: both are the same cluster. A restore into a bucket
    that ended early is resumed by the same command; until it is finished, no gateway starts from the bucket.

    Exits with 1 when nothing was restored.
    """
    bytes_per_s = parsed_or_exit_2(size_bytes, rate, "--rate")
    if [target, data_dir, address].count(None) != 2:
        raise stop("name the data directory to make, or a bucket with --cluster, once", code=2)
    if address is not None:
        with (
            opened,
            bucket_settings(address, settings, config_file, timeout_s) as named,
            _progress() as report,
        ):
            from seqgate.gateway.admin.backup import bucket  # noqa: PLC0415 - slow to import

            paces = _paces(bytes_per_s, report, "restored")
            return _restored(bucket.restore(named, found_backup(backup), paces))
    if (settings, config_file, timeout_s) != (None, None, None):
        raise stop("--set, --config and --timeout need --cluster", code=2)
    made = data_dir or target or Path()
    with opened, _progress() as report:
        restored = restore_backup(found_backup(backup), made, _paces(bytes_per_s, report, "restored"))
    return _restored(restored)


def _restored(restored: Restored) -> Output:
    row = restored.backup
    ids = (
        "Producer ids come from Redis, which must not be older than the backup."
        if restored.next_producer_id is None
        else f"New producers get ids from {restored.next_producer_id} on."
    )
    made = restored.data_dir if restored.cluster is None else restored.cluster
    start = f"--data-dir {made}" if restored.cluster is None else f"--cluster {made} --data-dir ./cache"
    done = f"{made} has {counted(row.partitions, 'partition')} as of {moment(row.taken_ms)}."
    return Output(
        restored,
        [
            f"{done} {ids}",
            f"Start it: seqgate serve {start}",
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
    lock `.backup.lock` until it has removed `.backup`. A worker lets all workers do it, and refuses for all.
    """

    is_of_all = True


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
    """A restored data directory, or the address of a restored bucket. `next_producer_id` is the first id to
    hand out, None if Redis has them.
    """

    backup: BackupRow
    data_dir: str | None
    next_producer_id: int | None
    cluster: str | None = None


def backup_row(path: str, manifest: BackupManifest) -> BackupRow:
    """Return the row of a backup."""
    return BackupRow(
        path=path,
        taken_ms=manifest.taken_ms,
        is_live=manifest.is_live,
        cluster_id=manifest.cluster_id,
        directory_id=manifest.directory_id,
        node_id=manifest.node_id,
        release=manifest.release,
        partitions=manifest.partitions,
        files=len(manifest.files),
        size_bytes=manifest.size_bytes,
        copied_bytes=manifest.copied_bytes,
    )


def _failures() -> tuple[type[Exception], ...]:
    """Return the errors of backups, which end a command with their sentences."""
    from seqgate.gateway.backup.repository import BackupError  # noqa: PLC0415 - slow to import
    from seqgate.gateway.metadata.records import UnknownRecordError  # noqa: PLC0415
    from seqgate.log import IncompatibleFormat, LogError  # noqa: PLC0415

    return BackupError, IncompatibleFormat, LogError, OSError, UnknownRecordError


# Backs a data directory up: the running gateway stages its files, or the command itself where no gateway
# runs; then the command copies them. `bucket.py` backs a bucket up.


def create_backup(
    data_dir: Path,
    target: Path,
    pace: Pace,
    *,
    is_full: bool,
    keep: int | None,
    timeout_s: float | None = None,
) -> CreatedBackup:
    """Back a data directory up into `target`; a running gateway has `timeout_s` to stage its files, by
    default STAGE_TIMEOUT_S. Raises ControlError.
    """
    from seqgate.gateway.admin.stored import check_is_no_cache, existing_metadata_directory  # noqa: PLC0415 - slow
    from seqgate.gateway.backup.repository import Repository  # noqa: PLC0415
    from seqgate.log import Storage  # noqa: PLC0415

    storage = Storage()
    existing_metadata_directory(data_dir)
    instead = "which has the records: name the bucket with --cluster ADDRESS"
    check_is_no_cache(storage, data_dir, instead)
    if target.resolve().is_relative_to(data_dir.resolve()):
        raise ControlError(f"{target} is in the data directory; name a directory on another disk")
    repository = Repository(storage, str(target))
    try:
        repository.create_and_lock()
        try:
            with staged_in(storage, data_dir, timeout_s or STAGE_TIMEOUT_S) as staged:
                created = copy_staged(
                    storage, str(data_dir), staged, repository, pace, is_full=is_full, keep=keep
                )
        finally:
            repository.unlock()
    except _failures() as error:
        raise ControlError(f"the backup failed: {in_words(error)}") from error
    return CreatedBackup(backup_row(created.path, created.manifest), created.removed)


STAGE_TIMEOUT_S: Final = 600.0
"""How long a gateway may take to give second names to the files of all partitions."""


@contextmanager
def staged_in(storage: Storage, data_dir: Path, timeout_s: float) -> Iterator[Staged]:
    """Yield what a directory, or its running gateway, has staged; then remove it. Raises ControlError."""
    from seqgate.log import DirectoryLocked  # noqa: PLC0415 - slow to import
    from seqgate.log.staging import STAGING_LOCK, read_staged, remove_staging  # noqa: PLC0415

    lock = str(data_dir / STAGING_LOCK)
    try:
        storage.lock(lock)
        _give_to_owner(data_dir, lock)
    except DirectoryLocked as error:
        raise ControlError(f"another backup of {data_dir} is under way; wait until it ends") from error
    except OSError as error:
        raise ControlError(f"{data_dir} can't be locked: {in_words(error)}") from error
    try:
        _stage(storage, data_dir, timeout_s)
        yield read_staged(storage, str(data_dir))
    finally:
        with contextlib.suppress(OSError):
            # The gateway, or the next backup, removes what can't be removed now.
            remove_staging(storage, str(data_dir))
        storage.unlock(lock)


def _give_to_owner(data_dir: Path, lock: str) -> None:
    """Let the gateway lock a file that root has created. Raises OSError."""
    owner = data_dir.stat()
    if os.geteuid() == 0:
        os.chown(lock, owner.st_uid, owner.st_gid)


def _stage(storage: Storage, data_dir: Path, timeout_s: float) -> None:
    from seqgate.gateway.admin.stored import locked  # noqa: PLC0415 - slow to import
    from seqgate.gateway.runtime.topics.producer_ids import SEEN_FILE  # noqa: PLC0415
    from seqgate.gateway.workers.shared_directory import make_staged_whole  # noqa: PLC0415
    from seqgate.log import IncompatibleFormat, LogError  # noqa: PLC0415
    from seqgate.log.staging import stage_stopped  # noqa: PLC0415

    try:
        ask(data_dir, StageBackupRequest(), timeout_s=timeout_s)
    except NotRunning:
        with locked(storage, data_dir):  # the gateway may start once the files are linked
            try:
                stage_stopped(storage, str(data_dir), time.time_ns() // 1_000_000, (SEEN_FILE,))
            except (IncompatibleFormat, LogError, OSError) as error:
                raise ControlError(f"{data_dir} can't be backed up: {in_words(error)}") from error
    make_staged_whole(storage, data_dir, lambda: time.time_ns() // 1_000_000)


def copy_staged(
    storage: Storage,
    data_dir: str,
    staged: Staged,
    repository: Repository,
    pace: Pace,
    *,
    is_full: bool = False,
    keep: int | None = None,
) -> Created:
    """Copy what is staged in a data directory; the caller holds the lock of the repository.

    With `is_full` nothing is shared with earlier backups; with `keep` only so many backups stay, this one
    included. A backup that fails is removed again. Raises BackupError, OSError, LogError.
    """
    from seqgate.gateway.backup.repository import BackupManifest, NewBackup  # noqa: PLC0415 - slow to import
    from seqgate.log.staging import META, data_path, read_properties  # noqa: PLC0415

    source = data_path(data_dir)
    properties = read_properties(storage, f"{source}/{META}")
    header = BackupManifest(
        release=__version__,
        cluster_id=properties.get("cluster.id", ""),
        directory_id=properties.get("directory.id", ""),
        node_id=properties.get("node.id", ""),
        directory_version=properties.get("version", ""),
        taken_ms=staged.taken_ms,
        is_live=staged.is_live,
        partitions=staged.partitions,
        copied_bytes=0,
        files=[],
    )
    before = None if is_full else repository.newest_of(header)
    wanted = _wanted(storage, source, staged, None if before is None else before[1])
    needed = sum(file.size_bytes for file in wanted if file.known is None)
    check_room(storage, repository.path, needed, f"{needed:,}", is_new=True)
    backup = NewBackup(repository, header, pace, before, len(wanted))
    try:
        for file in wanted:
            backup.share_or_copy(source, file)
        return backup.finish(keep)
    except BaseException:
        backup.discard()
        raise


def _wanted(storage: Storage, source: str, staged: Staged, before: BackupManifest | None) -> list[WantedFile]:
    from seqgate.gateway.backup.repository import WantedFile  # noqa: PLC0415 - slow to import

    known = {} if before is None else {file.path: file for file in before.files}
    found = []
    for path, entry in _files(storage, source):
        size_bytes = staged.sizes.get(path, entry.size_bytes)
        facts = size_bytes, entry.inode, entry.modified_ns
        same = known.get(path)
        if same is not None and (same.size_bytes, same.inode, same.modified_ns) != facts:
            same = None
        found.append(WantedFile(path, *facts, same, path in staged.sizes))
    return found


def _files(storage: Storage, source: str) -> Iterator[tuple[str, FileEntry]]:
    """Yield the files of the data directory and of its partitions, by their paths."""
    for entry in sorted(storage.entries(source)):
        if not entry.is_directory:
            yield entry.name, entry
            continue
        for file in sorted(storage.entries(f"{source}/{entry.name}")):
            yield f"{entry.name}/{file.name}", file


def check_room(storage: Storage, path: str, needed_bytes: int, needs: str, *, is_new: bool) -> None:
    """Check that a new backup, or a restore, leaves RESERVE_BYTES free. Raises BackupError."""
    from seqgate.gateway.backup.repository import RESERVE_BYTES, BackupError  # noqa: PLC0415 - slow to import

    free = storage.free_bytes(path)
    if needed_bytes + RESERVE_BYTES > free:
        advice = "; remove older backups there, or name another directory" if is_new else ""
        raise BackupError(
            f"{path} has {free:,} bytes free, and the backup needs {needs} and {RESERVE_BYTES:,} in "
            f"reserve{advice}"
        )


# In the gateway: it stages the files.

LONGEST_STAGING_S: Final = 590.0
"""How long a gateway may take to give second names to the files of all partitions. A command waits longer."""


async def stage_backup(gateway: LiveGateway, _: StageBackupRequest) -> StagedBackup:
    """Stage the files of the data directory. Raises ControlError."""
    from seqgate.gateway.runtime.upkeep.backup_staging import StagingRefused  # noqa: PLC0415 - slow to import

    backups = gateway.services.upkeep.backups
    if backups is None:
        raise ControlError(
            "this gateway keeps its records in a bucket, and its data directory is a cache: name the bucket "
            "with --cluster ADDRESS"
        )
    try:
        staged = await backups.begin()
    except StagingRefused as error:
        cause = error.__cause__
        reason = in_words(cause) if isinstance(cause, Exception) else str(error)
        raise ControlError(f"the backup can't begin: {reason}") from error
    return StagedBackup(staged.taken_ms, staged.partitions)


# Lists and verifies backups.


def backups_in(target: Path) -> list[BackupRow]:
    """Return the backups of a directory, the oldest first, unusable ones included. Raises ControlError."""
    from seqgate.gateway.backup.repository import BackupError, Repository  # noqa: PLC0415 - slow to import
    from seqgate.log import Storage  # noqa: PLC0415

    repository = Repository(Storage(), str(target))
    rows = []
    try:
        for name, found in repository.manifests():
            path = f"{target}/{name}"
            if isinstance(found, BackupError):
                rows.append(BackupRow(path, complaint=str(found)))
            else:
                rows.append(backup_row(path, found))
    except OSError as error:
        raise ControlError(f"{target} can't be listed: {in_words(error)}") from error
    return rows


def found_backup(place: Path) -> Path:
    """Return a backup, or the newest complete one of a directory that has backups."""
    from seqgate.gateway.backup.repository import NAME, Repository  # noqa: PLC0415 - slow to import
    from seqgate.log import Storage  # noqa: PLC0415

    try:
        if (place / NAME).exists():
            return place
        names = Repository(Storage(), str(place)).complete_backups()
    except OSError:
        return place  # its opening says what is wrong
    return place / names[-1] if names else place


def verify_backup(backup: Path, pace: Callable[[int], Pace]) -> Verified:
    """Read a backup whole and compare it with its manifest. Raises ControlError with the sentence of
    `manifest_of_complete`: no backup, never finished, a damaged manifest, or a newer version.
    """
    from seqgate.gateway.backup.repository import manifest_of_complete  # noqa: PLC0415 - slow to import
    from seqgate.log import Storage  # noqa: PLC0415

    storage = Storage()
    try:
        manifest = manifest_of_complete(storage, str(backup))
        damaged = list(damage_of(storage, str(backup), manifest, pace(manifest.size_bytes)))
    except _failures() as error:
        raise ControlError(in_words(error)) from error
    return Verified(backup_row(str(backup), manifest), damaged)


def damage_of(storage: Storage, backup: str, manifest: BackupManifest, pace: Pace) -> Iterator[DamagedFile]:
    """Yield the files that are missing or have other bytes than the manifest says. Reads every byte. Raises
    OSError.
    """
    from seqgate.gateway.backup.repository import DATA  # noqa: PLC0415 - slow to import
    from seqgate.log.staging import digest  # noqa: PLC0415

    for file in manifest.files:
        path = f"{backup}/{DATA}/{file.path}"
        try:
            size_bytes = storage.size_bytes(path)
        except FileNotFoundError:
            yield DamagedFile(file.path, "the file is missing")
            continue
        if size_bytes != file.size_bytes:
            yield DamagedFile(file.path, f"the file has {size_bytes:,} bytes instead of {file.size_bytes:,}")
            continue
        try:
            found = digest(storage, path, file.size_bytes, pace.spend)
        except OSError as error:
            yield DamagedFile(file.path, f"the file can't be read: {error}")
            continue
        if found.sha256 != file.sha256:
            yield DamagedFile(file.path, "the bytes differ from those that were copied (SHA-256)")


# Restores a backup of a data directory.

LEAST_GAP: Final = 1_000_000_000_000
"""The fewest producer ids between those that a backup knows and those that the restored gateway hands out."""
IDS_PER_MS: Final = 1_000
"""Producer ids for each millisecond of the clock: a later restore of a backup begins above an earlier one."""


def first_id_after_restore(next_producer_id: int, now_ms: int) -> int:
    """Return the first producer id that a restored gateway hands out; `next_producer_id` is the backup's."""
    return max(next_producer_id + LEAST_GAP, now_ms * IDS_PER_MS)


def restore_backup(backup: Path, data_dir: Path, pace: Callable[[int], Pace]) -> Restored:
    """Copy a backup into an empty data directory, and move its producer ids. Raises ControlError."""
    from seqgate.gateway.backup.repository import manifest_of_complete  # noqa: PLC0415 - slow to import
    from seqgate.gateway.config import load_config  # noqa: PLC0415
    from seqgate.log import Storage  # noqa: PLC0415

    storage = Storage()
    next_id: int | None = None

    def prepare() -> None:
        nonlocal next_id
        next_id = _move_ids(data_dir, load_config(overrides=[f"node.id={manifest.node_id}"]))

    try:
        manifest = manifest_of_complete(storage, str(backup))
        restore_files(storage, str(backup), manifest, str(data_dir), pace(manifest.size_bytes), prepare)
    except _failures() as error:
        raise ControlError(f"nothing is restored: {in_words(error)}") from error
    return Restored(backup_row(str(backup), manifest), str(data_dir.absolute()), next_id)


def _move_ids(data_dir: Path, config: Config) -> int | None:
    """Let the restored gateway hand out no id that the original has handed out since the backup. Raises
    ControlError. Returns the next id; None where the ids come from Redis, which knows them all.
    """
    from seqgate.gateway.admin.operations import answer_stopped  # noqa: PLC0415 - slow to import
    from seqgate.gateway.admin.pids import MovedNextId, MoveNextRequest  # noqa: PLC0415
    from seqgate.gateway.admin.stored import existing_metadata_directory, read_image  # noqa: PLC0415
    from seqgate.gateway.runtime.topics.producer_ids import SEEN_FILE  # noqa: PLC0415

    image = read_image(existing_metadata_directory(data_dir))
    if not image.producer_id_blocks and (data_dir / SEEN_FILE).exists():
        return None
    now_ms = time.time_ns() // 1_000_000
    request = MoveNextRequest(first_id_after_restore(image.next_producer_id, now_ms))
    moved: MovedNextId = answer_stopped(data_dir, config, now_ms, request)
    return moved.current


def restore_files(
    storage: Storage,
    backup: str,
    manifest: BackupManifest,
    data_dir: str,
    pace: Pace,
    prepare: Callable[[], None],
) -> None:
    """Copy all files of a backup into an empty data directory, and compare their checksums. `meta.properties`
    comes last, after all else is durable, and after `prepare`: without it no gateway starts on the directory.

    Removes what it copied when it fails. Raises BackupError, OSError, LogError, and what `prepare` raises.
    """
    from seqgate.gateway.backup.repository import BackupError  # noqa: PLC0415 - slow to import
    from seqgate.log import LocalDurability  # noqa: PLC0415
    from seqgate.log.staging import META, Flush  # noqa: PLC0415

    if manifest.bucket is not None:
        raise BackupError(
            f"{backup} is a backup of the bucket {manifest.bucket}: name a bucket with --cluster"
        )
    last = next((file for file in manifest.files if file.path == META), None)
    if last is None:
        raise BackupError(f"the backup has no {META}")
    others = [file for file in manifest.files if file.path != META]
    changed = storage.make_directories(data_dir)
    if storage.some_names(data_dir, 1):
        raise BackupError(f"{data_dir} is not empty; restore into a new or empty directory")
    check_room(storage, data_dir, manifest.size_bytes, f"{manifest.size_bytes:,}", is_new=False)
    flush = Flush(storage, data_dir, len(manifest.files))
    directories = {data_dir: None}
    try:
        for file in others:
            path = f"{data_dir}/{file.path}"
            directory = path.rpartition("/")[0]
            if directory not in directories:
                storage.make_directory(directory)
                directories[directory] = None
            _copy_checked(storage, backup, file, path, pace)
        flush.run([f"{data_dir}/{file.path}" for file in others], [*changed, *directories])
        prepare()
        temporary = f"{data_dir}/{META}.tmp"
        _copy_checked(storage, backup, last, temporary, pace)
        content = storage.read_file(temporary)
        storage.delete(temporary)
        LocalDurability(storage).replace(f"{data_dir}/{META}", content)
    except BaseException:
        with contextlib.suppress(OSError):
            storage.empty(data_dir)
        raise


def _copy_checked(storage: Storage, backup: str, file: CopiedFile, target: str, pace: Pace) -> None:
    from seqgate.gateway.backup.repository import DATA, BackupError  # noqa: PLC0415 - slow to import
    from seqgate.log.staging import copy_file  # noqa: PLC0415

    origin = f"{backup}/{DATA}/{file.path}"
    try:
        found = copy_file(storage, origin, target, file.size_bytes, pace.spend)
    except FileNotFoundError:
        raise BackupError(f"{origin} is missing: the backup is damaged") from None
    if found.sha256 != file.sha256:
        raise BackupError(
            f"{origin} has other bytes than were copied: the backup is damaged. Use "
            "another backup; `seqgate backup verify` lists all that is damaged"
        )
