"""`seqgate cluster`: the gateways of a cluster, and its bucket, which needs no running gateway.

`gateways.py` has the commands that ask gateways. Of those that read the bucket, `state.py`, `verification.py`
and `importing.py` have what they do and print.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from seqgate.gateway.admin.client import bootstrap_of
from seqgate.gateway.admin.cluster import gateways
from seqgate.gateway.admin.commands import Commands, Output, argument, asks, option
from seqgate.gateway.admin.options import (
    CommandConfig,
    ConfigFile,
    Opened,
    OtherCluster,
    asking,
    cluster,
    needs_bootstrap,
    nobody,
    timeout_of,
)
from seqgate.gateway.admin.tables import count, counted

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
BucketTimeout = Annotated[
    int | None, timeout_of("from a gateway 30; for a bucket the command waits until it answers")
]


class Bucket(NamedTuple):
    """The settings that name a bucket, and after how long without an answer a command gives up."""

    config: Config
    timeout_s: int | None


@contextmanager
def bucket_settings(
    address: Address = None,
    settings: Settings = None,
    config_file: ConfigFile = None,
    timeout_s: BucketTimeout = None,
) -> Iterator[Bucket]:
    """Yield the bucket that the options name; an error ends the command with its sentence."""
    named = () if address is None else (f"seqgate.cluster={address}",)
    with asking(config_file, None, (*(settings or ()), *named), asks_gateway=False) as client:
        yield Bucket(client.read_config(), timeout_s)


app.command("gateways")(gateways.list_gateways)
app.command("move")(gateways.move)
app.command("drain")(gateways.drain)
app.command("undrain")(gateways.undrain)


@app.command("status")
@asks(nobody)
def status(
    _: None,
    address: Address = None,
    settings: Settings = None,
    bootstrap: OtherCluster = None,
    command_config: CommandConfig = None,
    config_file: ConfigFile = None,
    timeout_s: BucketTimeout = None,
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
        with cluster(bootstrap, command_config, None, config_file, timeout_s) as reached:
            found = gateways.gateways_remote(reached, gateways.GatewaysRequest())
        return Output(found, gateways.listing(found))
    needs_bootstrap(command_config)
    with bucket_settings(address, settings, config_file, timeout_s) as bucket:
        from seqgate.gateway.admin.cluster.bucket import in_bucket  # noqa: PLC0415 - slow to import
        from seqgate.gateway.admin.cluster.state import cluster_state, state_text  # noqa: PLC0415

        answer = in_bucket(bucket, cluster_state)
    return Output(answer, state_text(answer))


@app.command("verify")
@asks(bucket_settings)
def verify(opened: Opened[Bucket]) -> Output:
    """Read everything that a start from the bucket would read, and check every checksum.

    Checks the metadata and its snapshots, the manifests of all partitions, the parts and side files that they
    name, the write-ahead logs, and that both fit together without a gap. A gateway may run meanwhile. The
    command reads all of the bucket, and the store charges for the requests.

    Exits with 1 when something is damaged or missing.
    """
    with opened as bucket:
        from seqgate.gateway.admin.cluster import verification  # noqa: PLC0415 - slow to import
        from seqgate.gateway.admin.cluster.bucket import in_bucket  # noqa: PLC0415

        show = ProgressLine("checked").show
        found = in_bucket(bucket, lambda objects, address: verification.verify(objects, address, show))
    return Output(found, verification.text(found), code=1 if found.damaged else 0)


@app.command("import")
@asks(bucket_settings)
def import_directory(
    opened: Opened[Bucket],
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
    with opened as bucket:
        from seqgate.gateway.admin.cluster import importing  # noqa: PLC0415 - slow to import
        from seqgate.gateway.admin.cluster.bucket import in_bucket  # noqa: PLC0415

        now_ms, show = time.time_ns() // 1_000_000, ProgressLine("sent").show
        done = in_bucket(
            bucket,
            lambda objects, address: importing.import_directory(
                objects, address, data_dir, bucket.config, now_ms, show
            ),
        )
    return Output(done, importing.text(done))


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
