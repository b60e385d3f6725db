"""`seqgate verdicts`: the newest batches that were not stored, and why."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from seqgate.gateway.admin.commands import Output, asks, option, stop
from seqgate.gateway.admin.options import Asker, OnlyPartition, OnlyTopic, Opened, gateway_or_gateways
from seqgate.gateway.admin.request import PagedRequest, newest_first
from seqgate.gateway.admin.tables import ClientOrNone, Column, known, moment, number, table

if TYPE_CHECKING:
    from seqgate.gateway.admin.operation import LiveGateway
    from seqgate.gateway.runtime.partitions.verdicts import UnstoredBatch

# The request for the newest batches that were not stored, and what `seqgate verdicts --json` prints.


class VerdictRow(msgspec.Struct, frozen=True):
    """A batch that was not stored: `outcome` is "duplicate" or the name of Kafka's error, `message` says why
    it was refused.

    `base_offset` is that of the duplicate's original; -1 for a refused batch. Fields of a batch without a
    whole header are -1. `client` sent the batch. `number` grows with each verdict of the gateway `node_id`,
    over restarts too.
    """

    number: int
    time_ms: Annotated[int, Column("time", moment)]
    topic: str
    partition: int
    producer_id: Annotated[int, Column("producer", known)]
    producer_epoch: Annotated[int, Column("epoch", known)]
    base_sequence: int
    last_sequence: int
    base_offset: Annotated[int, Column("offset", known)]
    outcome: Annotated[str, Column("outcome")]
    message: Annotated[str, Column("why")]
    client: ClientOrNone = None
    node_id: Annotated[int, Column("node", number)] = -1

    @property
    def place(self) -> Annotated[str, Column("partition")]:
        """The partition of the batch."""
        return f"{self.topic}-{self.partition}"

    @property
    def sequences(self) -> Annotated[str | None, Column("sequences", number)]:
        """The sequences of the first and the last record of the batch."""
        return None if self.base_sequence < 0 else f"{self.base_sequence}-{self.last_sequence}"


class VerdictPage(msgspec.Struct, frozen=True):
    """The newest verdicts that pass the filters, newest first. Each gateway of `nodes` keeps `kept` of them
    in memory.
    """

    verdicts: list[VerdictRow]
    kept: int
    nodes: list[int] = []


class ListVerdictsRequest(PagedRequest[VerdictPage], tag="verdicts"):
    """The newest batches that were not stored, and why; only verdicts with a number above `after`, or above
    that of the gateway's node id in `after_of`.
    """

    asks_every_worker = True
    is_of_each = True
    network_right = "DESCRIBE"
    rows = "verdicts"
    topic: str | None = None
    partition: int | None = None
    producer_id: int | None = None
    after: int = 0
    after_of: dict[int, int] = msgspec.field(default_factory=dict)


SHOWN: Final = 100
"""Verdicts that the command shows unless --limit says otherwise."""


@asks(gateway_or_gateways)
def verdicts(
    opened: Opened[Asker],
    topic: OnlyTopic = None,
    partition: OnlyPartition = None,
    producer_id: int | None = option("--producer-id", "ID", "Only this producer.", show_default="all", min=0),
    limit: int = option(
        "--limit", "N", "At most this many verdicts.", show_default=True, min=1, default=SHOWN
    ),
) -> Output:
    """Show the newest batches that the gateway did not store, and why.

    A duplicate was answered with the offset of its original: its producer had sent it before. Every other
    batch was refused with an error of Kafka. Each gateway keeps the newest 10,000 verdicts in memory, and
    the newest 1,000 over restarts (seqgate.verdicts.kept.max). All workers and all gateways of a cluster are
    asked, and one without an answer is named on stderr; with --bootstrap that needs DESCRIBE on the cluster
    where there is an authorizer.

    \b
    Columns:
      node             the gateway, where there are several
      sequences        the sequences of the first and the last record of the batch
      offset           the offset of the duplicate's original
      outcome          "duplicate", or Kafka's error
      client           client id, address, library and principal of the client that sent the batch
      why              the sentence that the client got
    """  # noqa: D301 - \b keeps the lines of the list apart
    if partition is not None and topic is None:
        raise stop("--partition needs --topic", code=2)
    request = ListVerdictsRequest(topic=topic, partition=partition, producer_id=producer_id, limit=limit)
    with opened as client:
        page = client.ask(request)
    rows = sorted(page.verdicts, key=lambda row: -row.time_ms)[:limit]
    columns = "node_id " * (len(page.nodes) > 1)
    columns += "time_ms place producer_id producer_epoch sequences base_offset outcome client message"
    empty = "The gateway keeps no such verdict: each batch was stored, or its verdict is too old."
    text = table(VerdictRow, rows, columns) if rows else empty
    return Output({"verdicts": rows, "kept": page.kept}, [text])


# In the gateway: its newest verdicts.


def list_verdicts(gateway: LiveGateway, request: ListVerdictsRequest) -> VerdictPage:
    """Return the newest verdicts that pass the filters; all if this process has begun to count again."""
    newest = gateway.services.partitions.counters.verdicts.newest
    node_id = gateway.services.node.node_id
    after = request.after_of.get(node_id, request.after)
    found = (verdict for verdict in newest_first(newest, after) if _passes(verdict, request))
    rows = [VerdictRow(*verdict, node_id) for verdict in islice(found, request.limit)]
    return VerdictPage(rows, newest.maxlen or 0, [node_id])


def _passes(verdict: UnstoredBatch, request: ListVerdictsRequest) -> bool:
    return (
        request.topic in {None, verdict.topic}
        and request.partition in {None, verdict.partition}
        and request.producer_id in {None, verdict.producer_id}
    )
