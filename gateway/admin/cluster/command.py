"""`seqgate cluster`: the gateways of a cluster, and its bucket, which needs no running gateway.

`gateways.py` has the commands that ask gateways, `status.py`, `verify.py` and `importing.py` those that read
the bucket. The last two import most of the gateway, so their options are here.
"""

from __future__ import annotations

from pathlib import Path

from seqgate.gateway.admin.cluster import gateways
from seqgate.gateway.admin.cluster.bucket import Bucket, bucket_settings
from seqgate.gateway.admin.cluster.status import status
from seqgate.gateway.admin.commands import Commands, Output, argument, asks
from seqgate.gateway.admin.options import Opened

app = Commands("""Look at the bucket of a cluster and at its gateways, move partitions, \
and copy a data directory into a bucket.

Commands with --cluster read the bucket itself, whether a gateway runs or not. `seqgate status` \
has what a running gateway counts.
""")
app.command("gateways")(gateways.list_gateways)
app.command("move")(gateways.move)
app.command("drain")(gateways.drain)
app.command("undrain")(gateways.undrain)
app.command("status")(status)


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
        from seqgate.gateway.admin.cluster.verify import verified  # noqa: PLC0415 - slow to import

        return verified(bucket)


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
        from seqgate.gateway.admin.cluster.importing import imported  # noqa: PLC0415 - slow to import

        return imported(bucket, data_dir)
