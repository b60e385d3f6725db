"""The connection of a command to a cluster, through kafka-python's admin client."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import kafka
from kafka import errors as kafka_errors
from kafka.admin import KafkaAdminClient

from gateway.admin.remote.addresses import shown_address
from gateway.admin.remote.client_security import OPEN, ClientSecurity
from gateway.admin.remote.connection import BrokerAddress, check_connection
from gateway.admin.remote.errors import no_topic, sentence
from gateway.admin.remote.opening import opened
from gateway.admin.request import ControlError

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

logging.getLogger("kafka").setLevel(logging.CRITICAL)  # a command prints one sentence for an error


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that answered: the addresses that were given, the one that was reached, and kafka-python's admin client."""

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
    """Yield the cluster at these addresses, connected as `security` says. Raises ControlError, also in place of the errors of kafka-python."""
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
            f"{reached.shown} accepts connections, but does not answer over the Kafka protocol: {sentence(error)}{_ADVICE[security is OPEN]}"
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
        f"nothing answers at {', '.join(reasons)}; start a gateway there, or name another address with --bootstrap"
    )


def topic_partition(topic: str, partition: int) -> Any:
    """Return a partition as kafka-python names it."""
    return kafka.TopicPartition(topic, partition)
