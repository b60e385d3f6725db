"""`seqgate cluster gateways`, `seqgate cluster move` and `seqgate cluster drain`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Final

from seqgate.gateway.admin.gateways.messages import (
    DrainRequest,
    GatewayRow,
    Gateways,
    GatewaysRequest,
    MoveRequest,
)
from seqgate.gateway.admin.options import (
    Asker,
    Opened,
    Output,
    argument,
    asks,
    gateway_or_cluster,
    option,
    stop,
)
from seqgate.gateway.admin.tables import Block, counted, table

_PARTITION: Final = re.compile(r"(?P<topic>.+)-(?P<index>[0-9]{1,9})")
Timeout = Annotated[
    int, option("--timeout", "SECONDS", "How long to wait until it is done.", show_default=True, min=1)
]
NodeId = Annotated[int, argument("NODE", "The node id of a gateway.", min=0)]


@asks(gateway_or_cluster)
def move(
    opened: Opened[Asker],
    partition: Annotated[str, argument("TOPIC-PARTITION", "The partition, such as orders-3.")],
    node_id: NodeId,
    timeout_s: Timeout = 30,
) -> Output:
    """Make a gateway the leader of a partition.

    The present leader makes all records durable in the bucket and hands the partition over; producers and
    consumers follow by themselves. The partition prefers its new leader from now on.
    """
    named = _PARTITION.fullmatch(partition)
    if named is None:
        raise stop(f"{partition} is no partition; name a topic and a number, such as orders-3", 2)
    request = MoveRequest(named["topic"], int(named["index"]), node_id, timeout_s * 1000)
    with opened as client:
        answer = client.ask(request)
    return Output(answer, [f"Node {answer.leader} leads {answer.topic}-{answer.partition}."])


@asks(gateway_or_cluster)
def drain(
    opened: Opened[Asker],
    node_id: NodeId,
    timeout_s: Timeout = 30,
) -> Output:
    """Let a gateway hand over all partitions that it leads, and keep new ones away from it.

    Asks the gateway that runs on --data-dir, or with --bootstrap a gateway on any machine; it can be any
    gateway of the cluster. A drained gateway goes on to serve clients, so that it can be stopped without a
    pause for anyone; when it starts again, it takes part as before.

    Exits with 1 when the gateway still leads partitions after the timeout; it goes on to hand them over.
    """
    with opened as client:
        answer = client.ask(DrainRequest(node_id, timeout_s * 1000))
    left = f"still leads {counted(answer.leaders, 'partition')}, and hands them over"
    text = f"Node {node_id} {left if answer.leaders else 'leads nothing any more'}."
    return Output(answer, [text], code=1 if answer.leaders else 0)


@asks(gateway_or_cluster)
def gateways(
    opened: Opened[Asker],
) -> Output:
    """List the gateways of a cluster: which of them are live, and how many partitions each leads."""
    with opened as client:
        answer = client.ask(GatewaysRequest())
    return Output(answer, gateways_text(answer))


def gateways_text(answer: Gateways) -> Iterator[Block]:
    """Yield the table of gateways, and a line for what is not in order."""
    yield table(GatewayRow, answer.gateways)
    if answer.moving:
        yield f"{counted(answer.moving, 'partition')} to be handed over."
    if answer.leaderless:
        yield f"{counted(answer.leaderless, 'partition')} without a live leader."
