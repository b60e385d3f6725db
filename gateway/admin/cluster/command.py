"""`seqgate cluster`: the gateways of a cluster, and its bucket, which needs no running gateway."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from seqgate.gateway.admin import gateways
from seqgate.gateway.admin.client import bootstrap_of
from seqgate.gateway.admin.commands import Commands, Output, argument, asks, option
from seqgate.gateway.admin.gateways import Gateways
from seqgate.gateway.admin.options import (
    CommandConfig,
    ConfigFile,
    Opened,
    OtherCluster,
    asking,
    cluster,
    needs_bootstrap,
    nobody,
)
from seqgate.gateway.admin.tables import Block, Column, Table, count, counted, moment, shown, table

if TYPE_CHECKING:
    from seqgate.gateway.config import Config

app = Commands("""Look at the bucket of a cluster and at its gateways, move partitions, \
and copy a data directory into a bucket.

Commands with --cluster read the bucket itself, whether a gateway runs or not. `seqgate status` \
has what a running gateway counts.
""")
PROGRESS_EVERY_S: Final = 1.0

Address = Annotated[
    str | None,
    option(
        "--cluster",
        "ADDRESS",
        "The bucket or directory: s3://BUCKET/PREFIX or file:///DIRECTORY. [default: seqgate.cluster of "
        "--config]",
    ),
]
Settings = Annotated[
    list[str] | None,
    option("--set", "NAME=VALUE", "A setting, such as seqgate.cluster.endpoint; may be repeated."),
]


@contextmanager
def bucket_settings(
    address: Address = None, settings: Settings = None, config_file: ConfigFile = None
) -> Iterator[Config]:
    """Yield the settings that name the bucket; an error ends the command with its sentence."""
    named = () if address is None else (f"seqgate.cluster={address}",)
    with asking(config_file, None, (*(settings or ()), *named), asks_gateway=False) as client:
        yield client.read_config()


app.command("gateways")(gateways.list_gateways)
app.command("move")(gateways.move)
app.command("drain")(gateways.drain)


@app.command("status")
@asks(nobody)
def status(
    _: None,
    address: Address = None,
    settings: Settings = None,
    bootstrap: OtherCluster = None,
    command_config: CommandConfig = None,
    config_file: ConfigFile = None,
) -> Output:
    """Show what the bucket holds, what its storage costs, when it was last uploaded to, whether its last
    session has ended, and its gateways.

    The write-ahead logs shrink with each upload. An oldest object of more than twice
    `seqgate.cluster.upload.interval.ms` means that uploads fail: `seqgate status` shows why. Lists all
    objects: one request for each thousand. A gateway that has crashed is shown as live until another has
    taken over.

    With --bootstrap, asks the gateways instead: which of them are live, and how many partitions each leads.
    """
    if address is None and settings is None:
        bootstrap = bootstrap_of(bootstrap, None, config_file)
    if bootstrap is not None:
        with cluster(bootstrap, command_config, None, config_file) as reached:
            found = gateways.gateways_remote(reached, gateways.GatewaysRequest())
        return Output(found, gateways.listing(found))
    needs_bootstrap(command_config)
    with bucket_settings(address, settings, config_file) as config:
        from seqgate.gateway.admin.cluster import bucket  # noqa: PLC0415 - slow to import

        answer = bucket.read_state(config)
    gateways_there = [] if answer.gateways is None else ["", *gateways.listing(answer.gateways)]
    return Output(answer, [Table((Column("cluster"), Column("")), _rows(answer)), *gateways_there])


def _rows(answer: ClusterState) -> list[tuple[str, str]]:
    last = answer.last
    if last.ended is not None:
        end = f"ended: {shown(last.ended)}"
    elif last.last_object_ms is not None:
        end = f"runs, or has crashed; its last object is of {moment(last.last_object_ms)}"
    else:
        end = "has written nothing yet"
    return [
        ("address", answer.address),
        ("cluster id", answer.cluster_id),
        ("sessions", count(answer.sessions)),
        (
            "last session",
            (
                f"{last.session} of node {last.node_id} on {shown(last.host)}, since "
                f"{moment(last.registered_ms)}"
            ),
        ),
        ("", end),
        *(
            (
                "ended session" if not number else "",
                (
                    f"{ended.session} of node {ended.node_id} on {shown(ended.host)}, "
                    f"{moment(ended.ended_ms)}: {shown(ended.reason)}"
                ),
            )
            for number, ended in enumerate(answer.ended)
        ),
        (
            "history",
            (
                f"{counted(answer.partitions, 'partition')}, {counted(answer.parts.objects, 'object')}, "
                f"{count(answer.parts.size_bytes)} bytes"
            ),
        ),
        (
            "write-ahead logs",
            f"{counted(answer.wal.objects, 'object')}, {count(answer.wal.size_bytes)} bytes"
            + ("" if answer.oldest_wal_ms is None else f", the oldest of {moment(answer.oldest_wal_ms)}"),
        ),
        (
            "metadata",
            f"{counted(answer.metadata.objects, 'object')}, {count(answer.metadata.size_bytes)} bytes; a "
            f"start reads {counted(answer.changes_behind, 'object')}"
            + (f" behind the snapshot {count(answer.snapshots[-1])}" if answer.snapshots else ""),
        ),
        ("last upload", "none yet" if answer.last_upload_ms is None else moment(answer.last_upload_ms)),
        ("storage", f"${answer.us_dollars_per_month:,.4f} a month, by Amazon's list for S3"),
    ]


@app.command("verify")
@asks(bucket_settings)
def verify(opened: Opened[Config]) -> Output:
    """Read everything that a start from the bucket would read, and check every checksum.

    Checks the metadata and its snapshots, the manifests of all partitions, the parts and side files that they
    name, the write-ahead logs, and that both fit together without a gap. A gateway may run meanwhile. The
    command reads all of the bucket, and the store charges for the requests.

    Exits with 1 when something is damaged or missing.
    """
    with opened as config:
        from seqgate.gateway.admin.cluster import bucket  # noqa: PLC0415 - slow to import

        found = bucket.check(config, ProgressLine("checked").show)
    return Output(found, _verification_text(found), code=1 if found.damaged else 0)


def _verification_text(found: Verification) -> Iterator[Block]:
    if found.damaged:
        yield table(DamagedObject, found.damaged)
    outcome = f"{counted(len(found.damaged), 'object')} damaged or missing" if found.damaged else "all sound"
    yield (
        f"{counted(found.partitions, 'partition')}, {counted(found.parts, 'part')}, "
        f"{counted(found.wal_objects, 'object')} of write-ahead logs, {count(found.size_bytes)} bytes: "
        f"{outcome}."
    )
    if found.unnamed:
        unnamed = counted(found.unnamed, "object")
        yield f"{unnamed} that no manifest names; a running gateway deletes them later."


@app.command("import")
@asks(bucket_settings)
def import_directory(
    opened: Opened[Config],
    data_dir: Path = argument(
        "DIRECTORY",
        "The data directory of a stopped gateway that ran without --cluster.",
        exists=True,
        file_okay=False,
    ),
) -> Output:
    """Copy the data directory of a stopped gateway into an empty bucket, and check the copy byte by byte.

    Afterwards `seqgate serve --cluster ADDRESS` with a new data directory has all topics, records, groups,
    transactions and users. The old directory keeps its records; do not start a gateway on it again, because
    its new records would not be in the bucket. An import that ended early is resumed by the same command;
    until it is finished, no gateway starts from the bucket.
    """
    with opened as config:
        from seqgate.gateway.admin.cluster import bucket  # noqa: PLC0415 - slow to import

        done = bucket.copy_into(config, data_dir, time.time_ns() // 1_000_000, ProgressLine("sent").show)
    copied = (
        f"{counted(done.partitions, 'partition')}, {counted(done.parts, 'part')}, {count(done.size_bytes)} "
        f"bytes of records are in {done.address}, and were read back. The requests cost "
        f"${done.us_dollars:,.4f} by Amazon's list for S3."
    )
    following = f"Start the gateway: seqgate serve --cluster {done.address} --data-dir NEW_DIRECTORY"
    return Output(done, [copied, following])


class ProgressLine:
    """Prints on the terminal how far a command is, at most once a second; nothing without a terminal."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._shown_s = time.monotonic()

    def show(self, objects: int, size_bytes: int) -> None:
        """Show the numbers of objects and bytes, unless the last ones were shown just now."""
        now_s = time.monotonic()
        if sys.stderr.isatty() and now_s - self._shown_s >= PROGRESS_EVERY_S:
            self._shown_s = now_s
            print(f"{self._verb}: {counted(objects, 'object')}, {count(size_bytes)} bytes", file=sys.stderr)


# The JSON output of `seqgate cluster`: what a bucket holds, and what of it is damaged.


class LastSession(msgspec.Struct, frozen=True):
    """The last session of a cluster. `ended` is the reason in its seal; None while the session runs, and
    after a crash.

    `last_object_ms` is the time of its newest object, or that of its boundary when uploads have deleted all
    objects; None for a session that has written nothing.
    """

    session: int
    node_id: int
    host: str
    release: str
    registered_ms: int
    last_object_ms: int | None
    ended: str | None


class EndedSessionRow(msgspec.Struct, frozen=True):
    """A session that has ended: `reason` is in its seal, which `by` wrote at `ended_ms`."""

    session: int
    node_id: int
    host: str
    by: int
    reason: str
    ended_ms: int


class Held(msgspec.Struct, frozen=True):
    """Objects of one kind."""

    objects: int
    size_bytes: int


class ClusterState(msgspec.Struct, frozen=True):
    """The content of a bucket.

    `oldest_wal_ms` is the time of the oldest object of the write-ahead logs, and `last_upload_ms` that of the
    newest manifest; None without one. `metadata` is all of `meta/`; `snapshots` are the numbers of the
    snapshots there, and `changes_behind` is how many objects a start reads besides the newest sound one.
    `us_dollars_per_month` is the price of the storage by Amazon's list for S3 Standard in us-east-1.
    """

    address: str
    cluster_id: str
    sessions: int
    last: LastSession
    partitions: int
    parts: Held
    wal: Held
    oldest_wal_ms: int | None
    last_upload_ms: int | None
    us_dollars_per_month: float
    metadata: Held = Held(0, 0)
    snapshots: list[int] = []
    changes_behind: int = 0
    ended: list[EndedSessionRow] = []
    """The last sessions that have ended, the newest first: clean stops, and gateways that were taken over."""
    gateways: Gateways | None = None
    """The gateways by the metadata; a crashed one is live until another takes over. None without any."""


class DamagedObject(msgspec.Struct, frozen=True):
    """An object that is missing or damaged."""

    key: Annotated[str, Column("object")]
    reason: str

    @property
    def damage(self) -> Annotated[str, Column("damage")]:
        """The reason without the object key at its front, which has a column of its own."""
        return self.reason.removeprefix(self.key).lstrip(": ")


class Verification(msgspec.Struct, frozen=True):
    """The numbers of objects that were read, and the damaged ones. `unnamed` counts objects that no
    manifest names: a crash left them, or a running gateway is about to delete them.
    """

    address: str
    partitions: int
    parts: int
    wal_objects: int
    size_bytes: int
    unnamed: int
    damaged: list[DamagedObject]


class Imported(msgspec.Struct, frozen=True):
    """A data directory that is in a bucket now. `us_dollars` is the requests' price by Amazon's list."""

    address: str
    data_dir: str
    cluster_id: str
    partitions: int
    parts: int
    size_bytes: int
    us_dollars: float
