"""`seqgate cluster gateways`, `seqgate cluster move` and `seqgate cluster drain`."""

from __future__ import annotations

import re
from typing import Annotated, Final

import typer

from seqgate.gateway.admin.gateways.messages import DrainRequest, Gateways, GatewaysRequest, MoveRequest
from seqgate.gateway.admin.options import (
    AsJson,
    CommandConfig,
    ConfigFile,
    DataDir,
    OtherCluster,
    asking_either,
    stop,
)
from seqgate.gateway.admin.printing import (
    UNKNOWN,
    Column,
    count,
    counted,
    print_json,
    print_lines,
    print_table,
    shown,
)

_PARTITION: Final = re.compile(r"(?P<topic>.+)-(?P<index>[0-9]{1,9})")
Timeout = Annotated[
    int,
    typer.Option("--timeout", metavar="SECONDS", min=1, help="How long to wait until it is done."),
]
NodeId = Annotated[
    int, typer.Argument(metavar="NODE", min=0, help="The node id of a gateway.", show_default=False)
]


def move(
    partition: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC-PARTITION", help="The partition, such as orders-3.", show_default=False
        ),
    ],
    node_id: NodeId,
    timeout_s: Timeout = 30,
    bootstrap: OtherCluster = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a gateway the leader of a partition.

    The present leader makes all records durable in the bucket and hands the partition over; producers and
    consumers follow by themselves. The partition prefers its new leader from now on.
    """
    named = _PARTITION.fullmatch(partition)
    if named is None:
        raise stop(f"{partition} is no partition; name a topic and a number, such as orders-3", 2)
    request = MoveRequest(named["topic"], int(named["index"]), node_id, timeout_s * 1000)
    with asking_either(bootstrap, config_file, data_dir, command_config) as client:
        answer = client.ask(request)
    if as_json:
        print_json(answer)
    else:
        print_lines(f"Node {answer.leader} leads {answer.topic}-{answer.partition}.")


def drain(
    node_id: NodeId,
    timeout_s: Timeout = 30,
    bootstrap: OtherCluster = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Let a gateway hand over all partitions that it leads, and keep new ones away from it.

    Asks the gateway that runs on --data-dir, or with --bootstrap a gateway on any machine; it can be any
    gateway of the cluster. A drained gateway goes on to serve clients, so that it can be stopped without a
    pause for anyone; when it starts again, it takes part as before.

    Exits with 1 when the gateway still leads partitions after the timeout; it goes on to hand them over.
    """
    with asking_either(bootstrap, config_file, data_dir, command_config) as client:
        answer = client.ask(DrainRequest(node_id, timeout_s * 1000))
    if as_json:
        print_json(answer)
    elif answer.leaders:
        print_lines(
            f"Node {node_id} still leads {counted(answer.leaders, 'partition')}, and hands them over."
        )
    else:
        print_lines(f"Node {node_id} leads nothing any more.")
    raise typer.Exit(1 if answer.leaders else 0)


def gateways(
    bootstrap: OtherCluster = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """List the gateways of a cluster: which of them are live, and how many partitions each leads."""
    with asking_either(bootstrap, config_file, data_dir, command_config) as client:
        answer = client.ask(GatewaysRequest())
    print_json(answer) if as_json else print_gateways(answer)


def print_gateways(answer: Gateways) -> None:
    """Print the table of gateways, and a line for what is not in order."""
    print_table(
        (
            Column("node", number=True),
            Column("address"),
            Column("rack"),
            Column("state"),
            Column("session", number=True),
            Column("leads", number=True),
            Column("preferred by", number=True),
        ),
        [
            (
                str(row.node_id),
                row.address,
                "" if row.rack is None else shown(row.rack),
                row.state,
                UNKNOWN if row.session is None else str(row.session),
                count(row.leaders),
                count(row.preferred),
            )
            for row in answer.gateways
        ],
    )
    if answer.moving:
        print_lines(f"{counted(answer.moving, 'partition')} to be handed over.")
    if answer.leaderless:
        print_lines(f"{counted(answer.leaderless, 'partition')} without a live leader.")
