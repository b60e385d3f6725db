"""The brokers of the cluster as this gateway sees them: client addresses, and leaders of partitions."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from seqgate.gateway.config import Config, Listener
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.records import PartitionRecord
from seqgate.gateway.peer.peers import PeerAddress

NO_LEADER: Final = -1
NO_EPOCH: Final = -1
EVERY_INTERFACE: Final = ("", "0.0.0.0", "::")  # noqa: S104 - compared, never bound


class Endpoint(NamedTuple):
    """The address at which clients of one listener reach a gateway."""

    host: str
    port: int

    @property
    def shown(self) -> str:
        """`HOST:PORT`, with brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def advertised_endpoint(config: Config, listener: Listener, port: int) -> Endpoint:
    """Return the address that clients are told for a listener, which is bound to `port`."""
    for entry in config.advertised_listeners:
        if entry.name == listener.name:
            return Endpoint(entry.host, entry.port or port)
    return Endpoint(os.uname().nodename if listener.host in EVERY_INTERFACE else listener.host, port)


class AdvertisedBroker(NamedTuple):
    """A broker as clients of one listener see it."""

    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


class Brokers:
    """This gateway, and the brokers that the metadata registers beside it. Where none is registered, this
    gateway serves alone: it leads every partition, also one that the metadata assigns to the node id of a
    gateway before it.
    """

    def __init__(self, image: MetadataImage, node_id: int, rack: str | None) -> None:
        self._image = image
        self._stored = image.brokers
        self.node_id = node_id
        self._rack = rack
        self.advertised: dict[str, Endpoint] = {}
        """The advertised address of each listener of this gateway, by its name."""
        self.withheld: set[tuple[str, int]] = set()
        """The partitions that this gateway leads, is handing over, and serves no more."""

    @property
    def is_alone(self) -> bool:
        """Whether no broker is registered, so that this gateway leads everything."""
        return not self._stored.by_id

    @property
    def live_ids(self) -> Sequence[int]:
        """The node ids of the gateways that may lead partitions, in order."""
        return self._stored.live(self.node_id)

    def endpoints_of(self, node_id: int) -> Mapping[str, Endpoint]:
        """Return the advertised address of each listener of a gateway, by name; none for an unknown one."""
        if node_id == self.node_id:
            return self.advertised
        stored = self._stored.by_id.get(node_id)
        return (
            {}
            if stored is None
            else {place.name: Endpoint(place.host, place.port) for place in stored.end_points}
        )

    @property
    def controller_id(self) -> int:
        """The lowest live node id: clients send administrative requests there. Every gateway can do them."""
        live = self._stored.live(self.node_id)
        return live[0] if live else NO_LEADER

    def others(self) -> Sequence[int]:
        return [node_id for node_id in self._stored.live(self.node_id) if node_id != self.node_id]

    def epoch_of(self, node_id: int) -> int:
        """Return the epoch of a broker's registration; -1 without one."""
        stored = self._stored.by_id.get(node_id)
        return NO_EPOCH if stored is None else stored.broker_epoch

    def on(self, listener_name: str) -> Iterator[AdvertisedBroker]:
        """Yield the brokers that have this listener, in the order of their node ids."""
        for node_id in sorted(self._stored.by_id.keys() | {self.node_id}):
            broker = self.find(node_id, listener_name)
            if broker is not None:
                yield broker

    def find(self, node_id: int, listener_name: str) -> AdvertisedBroker | None:
        """Return a broker as clients of the listener see it; None for an unknown node id or listener."""
        if node_id == self.node_id:
            endpoint = self.advertised.get(listener_name)
            if endpoint is None:
                return None
            return AdvertisedBroker(node_id, endpoint.host, endpoint.port, self._rack, is_fenced=False)
        stored = self._stored.by_id.get(node_id)
        for place in () if stored is None else stored.end_points:
            if stored is not None and place.name == listener_name:
                return AdvertisedBroker(node_id, place.host, place.port, stored.rack, stored.fenced)
        return None

    def find_live(self, node_id: int, listener_name: str) -> AdvertisedBroker | None:
        """Return a broker as `find` does; None for a fenced one, too."""
        broker = self.find(node_id, listener_name)
        return None if broker is None or broker.is_fenced else broker

    def peer_address(self, listener_name: str, node_id: int) -> PeerAddress | None:
        """Return the address of a live broker on the listener between brokers, or None."""
        found = self.find_live(node_id, listener_name)
        return None if found is None else PeerAddress(found.host, found.port)

    def leader_of(self, partition: PartitionRecord) -> int:
        """Return the node id of the partition's leader; -1 while its gateway is fenced."""
        if self.is_alone:
            return self.node_id
        return partition.leader if self._is_live(partition.leader) else NO_LEADER

    def leader_in(self, topic_key: str | bytes, index: int) -> tuple[int, int] | None:
        """Return a partition's leader and epoch, or None, by the topic's name or its id's 16 bytes."""
        if isinstance(topic_key, bytes):
            partition = self._image.partition(uuid.UUID(bytes=topic_key), index)
        else:
            partition = self._image.partition_named(topic_key, index)
        return None if partition is None else (self.leader_of(partition), partition.leader_epoch)

    def leads(self, partition: PartitionRecord) -> bool:
        return self.is_alone or partition.leader == self.node_id

    def serves(self, topic: str, index: int, partition: PartitionRecord) -> bool:
        """Return whether this gateway leads the partition, and is not handing it over."""
        return (topic, index) not in self.withheld and self.leads(partition)

    def replicas_of(self, partition: PartitionRecord) -> tuple[int, ...]:
        """Return the node ids of the partition's replicas: the gateways that are chosen first to lead it."""
        return (self.node_id,) if self.is_alone else partition.replicas

    def isr_of(self, partition: PartitionRecord) -> tuple[int, ...]:
        """Return the replicas that are live. They are in sync, because all gateways share the records."""
        fenced = self.fenced_replicas_of(partition)
        return tuple(replica for replica in self.replicas_of(partition) if replica not in fenced)

    def fenced_replicas_of(self, partition: PartitionRecord) -> tuple[int, ...]:
        """Return the replicas that are fenced or no longer registered."""
        if self.is_alone:
            return ()
        return tuple(replica for replica in partition.replicas if not self._is_live(replica))

    def _is_live(self, node_id: int) -> bool:
        stored = self._stored.by_id.get(node_id)
        return stored is not None and not stored.fenced
