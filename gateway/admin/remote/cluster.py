"""The connection of a command to a cluster, through kafka-python's admin client.

Asks a cluster for the names of its topics, groups and brokers, quickly: nobody waits longer than a timeout
for one broker.

Every function raises ControlError.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import kafka
from kafka import KafkaProducer
from kafka import errors as kafka_errors
from kafka.admin import KafkaAdminClient
from kafka.net.compat import KafkaNetClient
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import FindCoordinatorResponse
from kio.schema.list_groups.v3.request import ListGroupsRequest
from kio.schema.list_groups.v3.response import ListGroupsResponse
from kio.schema.metadata.v9.request import MetadataRequest
from kio.schema.metadata.v9.response import MetadataResponse
from kio.schema.types import GroupId
from kio.static.primitive import i8

from seqgate.gateway.admin.remote.addresses import shown_address
from seqgate.gateway.admin.remote.client_security import OPEN, ClientSecurity
from seqgate.gateway.admin.remote.connection import BrokerAddress, check_connection, exchange, open_connection
from seqgate.gateway.admin.remote.errors import no_topic, sentence
from seqgate.gateway.admin.request import ControlError

CLIENT_ID: Final = "seqgate"
CONNECT_TIMEOUT_S: Final = 5.0
"""Time for a TCP connection to one address."""
BOOTSTRAP_TIMEOUT_MS: Final = 10_000
"""Time for the first answer over the Kafka protocol."""
REQUEST_TIMEOUT_MS: Final = 30_000

_ADVICE: Final = {
    True: "; if its listener needs TLS or a login, name a file with client properties by --command-config",
    False: "",
}

C = TypeVar("C")
R = TypeVar("R")

logging.getLogger("kafka").setLevel(logging.CRITICAL)  # a command prints one sentence for an error


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that answered: the addresses that were given, the one that was reached, and kafka-python's
    admin client.
    """

    addresses: tuple[str, ...]
    reached: BrokerAddress
    admin: Any

    def all_topics(self) -> list[dict[str, Any]]:
        """Return the metadata of all topics, by name."""
        found: list[dict[str, Any]] = self.admin.describe_topics(None)
        return sorted(found, key=lambda topic: str(topic["name"]))

    def topics(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Return the metadata of these topics. Raises ControlError when one does not exist."""
        by_name = {topic["name"]: topic for topic in self.all_topics()}
        for name in names:
            if name not in by_name:
                raise no_topic(name, by_name, may_be_hidden=self.reached.security is not OPEN)
        return [by_name[name] for name in names]

    def broker_ids(self) -> list[int]:
        """Return the node ids of the brokers."""
        return sorted(int(broker["broker_id"]) for broker in self.admin.describe_cluster()["brokers"])

    def client_settings(self) -> dict[str, Any]:
        """Return the settings that producers and consumers of this cluster share."""
        return {
            "bootstrap_servers": list(self.addresses),
            "client_id": CLIENT_ID,
            "bootstrap_timeout_ms": BOOTSTRAP_TIMEOUT_MS,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
            "metrics_enabled": False,
            **self.reached.security.client_settings(),
        }


@contextmanager
def connected(addresses: Sequence[tuple[str, int]], security: ClientSecurity = OPEN) -> Iterator[Cluster]:
    """Yield the cluster at these addresses, connected as `security` says. Raises ControlError, also in place
    of the errors of kafka-python.
    """
    reached = _first_that_listens([BrokerAddress(*address, security) for address in addresses])
    shown = tuple(shown_address(*address) for address in addresses)
    try:
        admin = opened(
            KafkaAdminClient,
            bootstrap_servers=[reached.shown],
            client_id=CLIENT_ID,
            bootstrap_timeout_ms=BOOTSTRAP_TIMEOUT_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            **security.client_settings(),
        )
    except kafka_errors.KafkaError as error:
        raise ControlError(
            f"{reached.shown} accepts connections, but does not answer over the Kafka protocol: "
            f"{sentence(error)}{_ADVICE[security is OPEN]}"
        ) from error
    try:
        yield Cluster(shown, reached, admin)
    except (kafka_errors.KafkaConnectionError, kafka_errors.NodeNotReadyError) as error:
        raise ControlError(
            f"{reached.shown} answers, but the address that it advertises to clients can't be reached: "
            f"{sentence(error)}; check advertised.listeners of the cluster"
        ) from error
    except kafka_errors.KafkaError as error:
        raise ControlError(sentence(error)) from error
    finally:
        admin.close()


def _first_that_listens(addresses: Sequence[BrokerAddress]) -> BrokerAddress:
    """Return the first address that accepts a connection and the login. Raises ControlError when none does."""
    reasons = []
    for address in addresses:
        try:
            check_connection(address, CONNECT_TIMEOUT_S)
        except OSError as error:
            reason = "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
            reasons.append(f"{address.shown} ({reason})")
        else:
            return address
    raise ControlError(
        f"nothing answers at {', '.join(reasons)}; start a gateway there, or name another address with "
        "--bootstrap"
    )


def topic_partition(topic: str, partition: int) -> Any:
    """Return a partition as kafka-python names it."""
    return kafka.TopicPartition(topic, partition)


# Finds the partitions of a cluster that a command asks about.


def led_partitions(
    cluster: Cluster,
    topic: str | None,
    partition: int | None,
    holds: Callable[[str, bool], bool] = lambda _, is_internal: not is_internal,
) -> list[Any]:
    """Return the partitions that have a leader: of one topic, or of all whose name and internality `holds`
    accepts.
    """
    if topic is None:
        topics = [row for row in cluster.all_topics() if holds(row["name"], row["is_internal"])]
    else:
        topics = cluster.topics([topic])
    rows = [(found["name"], row) for found in topics for row in found["partitions"]]
    if partition is not None:
        rows = [(name, row) for name, row in rows if row["partition_index"] == partition]
        if not rows:
            raise ControlError(f"topic {topic} has no partition {partition}")
    return [
        topic_partition(name, row["partition_index"])
        for name, row in rows
        if row["error_code"] == 0 and row["leader_id"] >= 0
    ]


# Makes and ends clients of kafka-python.


def opened(kind: Callable[..., C], **settings: Any) -> C:
    """Return a client of this kind. Raises an error of kafka-python, and ControlError without the library of a codec.

    A constructor of kafka-python 3.0 that fails leaves its thread and its connections behind; this closes
    them.
    """
    made: list[KafkaNetClient] = []

    def network(**given: Any) -> KafkaNetClient:
        made.append(KafkaNetClient(**given))
        return made[-1]

    try:
        return kind(kafka_client=network, **settings)
    except BaseException as error:
        for each in made:
            each.close()
        if isinstance(error, RuntimeError) and "codec not found" in str(error):
            raise ControlError(f"{error}; run: pip install 'seqgate[codecs]'") from None
        raise


def give_up(producer: KafkaProducer) -> None:
    """Close a producer that has records which are not acknowledged, and send them no more.

    `KafkaProducer.close(timeout=0)` of kafka-python 3.0 raises an error then, and leaves the producer open.
    """
    sender = producer._sender  # noqa: SLF001 - there is no public way to send nothing more
    sender.force_close()
    sender.join()
    producer.close(timeout=0)


ALL_BROKERS: Final = "default"
"""The name of the configurations of all brokers."""
_BROKERS_ASKED: Final = 10
"""Brokers that are asked for their groups; the groups of further ones are left out."""


def topics(address: BrokerAddress, timeout_s: float) -> list[str]:
    """Return the names of all topics."""
    return [str(topic.name) for topic in metadata(address, timeout_s).topics]


def brokers(address: BrokerAddress, timeout_s: float) -> list[str]:
    """Return the node ids of the brokers, and the name that stands for all of them."""
    found = metadata(address, timeout_s, with_topics=False).brokers
    return [ALL_BROKERS, *(str(broker.node_id) for broker in found)]


def groups(address: BrokerAddress, timeout_s: float) -> list[str]:
    """Return the ids of the groups, of all kinds."""
    found: list[str] = []
    for broker in metadata(address, timeout_s, with_topics=False).brokers[:_BROKERS_ASKED]:
        of_broker = ask_broker(
            address.other(broker.host, int(broker.port)),
            ListGroupsRequest(),
            ListGroupsResponse,
            timeout_s=timeout_s,
        )
        found += (str(group.group_id) for group in of_broker.groups)
    return found


def metadata(address: BrokerAddress, timeout_s: float, *, with_topics: bool = True) -> MetadataResponse:
    """Return the brokers, and all topics with their partitions."""
    request = MetadataRequest(
        topics=None if with_topics else (),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    return ask_broker(address, request, MetadataResponse, timeout_s=timeout_s)


FIND: Final[Mapping[str, Callable[[BrokerAddress, float], list[str]]]] = {
    "topic": topics,
    "group": groups,
    "broker": brokers,
}


# Runs answers that are written once for a cluster and for a running gateway.


def finished(work: Coroutine[Any, Any, R]) -> R:
    """Return the result of a coroutine that waits for nothing but the network, where the thread waits."""
    while True:
        try:
            work.send(None)
        except StopIteration as end:
            result: R = end.value
            return result


# Sends requests that kafka-python does not know or can't address, with kio's schemas. Raises ControlError.

TIMEOUT_S: Final = 30.0
_GROUP: Final = i8(0)


def ask_coordinator(bootstrap: BrokerAddress, group: str, request: Any, response_type: type[R]) -> R:
    """Return the answer of the broker that coordinates `group`; `bootstrap` is any broker."""
    found = ask_broker(
        bootstrap,
        FindCoordinatorRequest(key_type=_GROUP, coordinator_keys=(GroupId(group),)),
        FindCoordinatorResponse,
    ).coordinators[0]
    if found.error_code.value:
        raise ControlError(
            f"group {group} has no coordinator: {found.error_message or found.error_code.name}"
        )
    return ask_broker(bootstrap.other(found.host, int(found.port)), request, response_type)


def ask_broker(
    address: BrokerAddress, request: Any, response_type: type[R], *, timeout_s: float = TIMEOUT_S
) -> R:
    """Return the answer of the broker at an address."""
    try:
        with open_connection(address, timeout_s) as connection:
            return exchange(connection, request, response_type)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ControlError(f"the broker at {address.shown} did not answer: {reason}") from error
