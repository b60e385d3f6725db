"""Decides which brokers the workers of a data directory are, and who leads what, while no worker runs.

A partition changes its leader only here, and in `moves`. A worker that dies is started again, and leads what
it led before, in the next leader epoch.
"""

from __future__ import annotations

import contextlib
import socket
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.leadership import failover, move_all, planned_moves
from seqgate.gateway.metadata.records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from seqgate.gateway.workers.link import Failed, encode
from seqgate.log import DirectoryShare

FENCED: Final = 1
Endpoints = Mapping[str, tuple[str, int]]
"""The advertised host and port of each listener, by its name."""


def registration(
    node_id: int, broker_epoch: int, incarnation_id: uuid.UUID, endpoints: Endpoints, rack: str | None
) -> RegisterBrokerRecord:
    """Return the record that registers a worker. `broker_epoch` is higher than any before."""
    places = tuple(BrokerEndpoint(name, host, port) for name, (host, port) in endpoints.items())
    return RegisterBrokerRecord(node_id, incarnation_id, broker_epoch, places, rack)


def only_brokers(image: MetadataImage, brokers: Sequence[RegisterBrokerRecord]) -> Iterator[MetadataRecord]:
    """Yield the records that make these the only brokers, and give them the partitions of the others."""
    wanted = {broker.broker_id for broker in brokers}
    yield from unregistered(image, besides=wanted)
    yield from brokers
    yield from failover(image, wanted, ())


def spread(image: MetadataImage, node_ids: Collection[int]) -> Iterator[MetadataRecord]:
    """Yield the moves after which all brokers lead as many. The image has the records of `only_brokers`."""
    for node_id in node_ids:
        yield from move_all(image, planned_moves(image, node_id, most=None)).records


def unregistered(image: MetadataImage, besides: Collection[int] = ()) -> Iterator[UnregisterBrokerRecord]:
    """Yield the records after which only the brokers of `besides` are registered."""
    for node_id, broker in image.brokers.by_id.items():
        if node_id not in besides:
            yield UnregisterBrokerRecord(node_id, broker.broker_epoch)


def died(image: MetadataImage, node_id: int) -> Iterator[MetadataRecord]:
    """Yield the record that fences a worker which has died, so that clients wait for its partitions."""
    broker = image.brokers.by_id.get(node_id)
    if broker is not None and not broker.fenced:
        yield BrokerRegistrationChangeRecord(node_id, broker.broker_epoch, fenced=FENCED)


def serves(image: MetadataImage, broker: RegisterBrokerRecord) -> Iterator[MetadataRecord]:
    """Yield a serving worker's addresses, and after a death the next leader epochs of its partitions."""
    known = image.brokers.by_id.get(broker.broker_id)
    if known is not None and not known.fenced and known.end_points == broker.end_points:
        return
    yield broker
    if known is None or not known.fenced:
        return
    for topic in image.topics_by_id.values():
        for partition in topic.partitions.values():
            if partition.leader == broker.broker_id:
                leader_epoch, partition_epoch = partition.leader_epoch + 1, partition.partition_epoch + 1
                yield replace(partition, leader_epoch=leader_epoch, partition_epoch=partition_epoch)


def leader_of(image: MetadataImage, topic: str, partition: int) -> int | None:
    """Return the node id of a partition's leader; None for an unknown partition."""
    known = image.partition_named(topic, partition)
    return None if known is None else known.leader


@dataclass(slots=True)
class WorkerStart:
    """A worker's share of the data directory, the metadata at its start, and its stream to the supervisor.
    `first_id` is the node id of worker 1, which the data directory belongs to.
    """

    first_id: int
    share: DirectoryShare
    image: MetadataImage
    end_offset: int
    connection: socket.socket


def report(connection: socket.socket, sentence: str) -> None:
    """Tell the supervisor why this process ends. Call this when nothing else uses the stream any more."""
    with contextlib.suppress(OSError):  # the supervisor may be gone
        connection.setblocking(True)
        connection.sendall(encode(Failed(sentence)))
