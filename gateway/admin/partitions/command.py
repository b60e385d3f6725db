"""`seqgate reopen`: brings an offline partition back."""

from __future__ import annotations

from typing import Annotated

import typer

from seqgate.gateway.admin.completion import topic_names
from seqgate.gateway.admin.options import AsJson, ConfigFile, DataDir, asking
from seqgate.gateway.admin.partitions.messages import ReopenRequest
from seqgate.gateway.admin.printing import print_json, print_lines


def reopen(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=topic_names, show_default=False)],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0, show_default=False)],
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Bring an offline partition back.

    A failed write or flush takes a partition offline; the others stay in service. Once the disk has room and
    works again, reopening reads the partition's files as after a crash: acknowledged records are there, a
    torn end is truncated. `seqgate status` lists the offline partitions.
    """
    with asking(config_file, data_dir) as client:
        answer = client.ask(ReopenRequest(topic, partition))
    if as_json:
        print_json(answer)
    else:
        print_lines(
            f"{topic}-{partition} is back: offsets {answer.log_start_offset} up to {answer.log_end_offset}."
        )
