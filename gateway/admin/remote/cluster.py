"""The connection of a command to a cluster: with kio's schemas for what lists and descriptions ask, and
through kafka-python's admin client for all else, and for what went wrong. Every function raises ControlError;
an error of kafka-python becomes a sentence.

kafka-python takes longer to import than such a command to run, so it is imported when it is first needed.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID
from weakref import WeakSet

from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from seqgate.gateway.admin.remote.addresses import shown_address
from seqgate.gateway.admin.remote.broker import (
    GROUP,
    TIMEOUT_S,
    BrokerAddress,
    ask_broker,
    exchange,
    finding,
    greet,
    open_connection,
)
from seqgate.gateway.admin.remote.client_security import OPEN, ClientSecurity
from seqgate.gateway.admin.remote.waiting import Deadline, Watch
from seqgate.gateway.admin.request import ControlError, Unreachable, nearest_hint
from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.protocol.kafka_4_4 import LaterErrorCode

if TYPE_CHECKING:
    from kafka import KafkaProducer

CLIENT_ID: Final = "seqgate"
CONNECT_TIMEOUT_S: Final = 5.0
"""Time for a TCP connection to one address, and for the first answer over it."""
BOOTSTRAP_TIMEOUT_MS: Final = 10_000
"""Time for the first answer over the Kafka protocol."""
REQUEST_TIMEOUT_MS: Final = 30_000
RECONNECT_MS: Final = 500
"""The longest pause between two attempts to connect."""

_ADVICE: Final = {
    True: "; if its listener needs TLS or a login, name a file with client properties by --command-config",
    False: "",
}

EARLIEST: Final = -2
LATEST: Final = -1
"""The times that ask for the first offset of a partition, and for the end: those of ListOffsets."""
NO_ID: Final = UUID(int=0)
"""The id of a topic that has none."""

_NOBODY: Final = -1
_BROKERS: Final = i8(1)
"""The endpoint type of DescribeCluster."""

C = TypeVar("C")
R = TypeVar("R")


class Cluster:
    """A cluster that answered: the addresses given, and the one reached.

    Topics and offsets are asked here, over one connection to each broker. Where an answer has an error, or a
    broker none, or an older version, kafka-python asks again: it retries, and knows what to say.
    """

    is_partial: bool = False
    """Whether answers may lack what silent brokers know."""

    def __init__(
        self,
        addresses: tuple[str, ...],
        reached: BrokerAddress,
        versions: Mapping[int, int] | None = None,
        connection: socket.socket | None = None,
        watch: Watch | None = None,
        deadline: Deadline | None = None,
        read_timeout_s: float | None = None,
    ) -> None:
        """Take the newest version of each API that the broker serves, and the connection that asked for it;
        without both, kafka-python asks all. `watch` learns what is wrong meanwhile. `deadline` is how long a
        command tries, None: as long as it thinks fit. `read_timeout_s` is as in `connected`.
        """
        self.watch = watch or Watch()
        self._deadline = deadline or Deadline(None)
        self.timeout_s = self._deadline.limit_s
        self._read_timeout_s = read_timeout_s
        self.addresses = addresses
        self.reached = reached
        self._versions = versions or {}
        self._connections = {} if connection is None else {reached: connection}

    @cached_property
    def admin(self) -> Any:
        """kafka-python's admin client, opened at its first use in place of all other connections."""
        self._hang_up()
        settings = self.client_settings()
        left_ms = self._deadline.left_s(settings["bootstrap_timeout_ms"] / 1000) * 1000
        return _admin_client(self.reached, {**settings, "bootstrap_timeout_ms": left_ms}, self.watch)

    def close(self) -> None:
        """Close all connections."""
        self._hang_up()
        if self._uses_kafka_python:
            self.admin.close()

    def _hang_up(self) -> None:
        """Close the connections that are not kafka-python's."""
        while self._connections:
            self._connections.popitem()[1].close()

    @property
    def _uses_kafka_python(self) -> bool:
        return "admin" in self.__dict__

    def ask(self, address: BrokerAddress | None, request: Any) -> Any:
        """Return the answer of a broker; None where kafka-python must ask: the broker does not serve the
        version, or gave no answer, or one that is an error, or kafka-python has connections already.
        """
        if (
            address is None
            or self._uses_kafka_python
            or self._versions.get(request.__api_key__, -1) < request.__version__
        ):
            return None
        known = self._connections.get(address)
        # kafka-python, which tries again, soon gets its turn where nobody may be at an advertised address
        left_s = self._deadline.left_s(CONNECT_TIMEOUT_S if known is None else TIMEOUT_S)
        try:
            connection = self._connections[address] = known or open_connection(address, left_s)
            connection.settimeout(left_s)
            with self.watch.asking(address.shown):
                answer = exchange(connection, request)
        except Exception:  # noqa: BLE001 - whatever it was, kafka-python meets it again, and reports it
            self.give_up_in_time(address)
            return None
        self._deadline.answered()
        return None if getattr(answer, "error_code", 0) else answer

    def ask_reached(self, request: Any, *, timeout_s: float | None = None) -> Any:
        """Return the answer of the reached broker over a connection of its own. Raises ControlError."""
        return self._ask_alone(self.reached, request, timeout_s)

    def _ask_alone(self, address: BrokerAddress, request: Any, timeout_s: float | None = None) -> Any:
        with self.watch.asking(address.shown):
            return ask_broker(address, request, timeout_s=timeout_s or self.timeout_s or TIMEOUT_S)

    def ask_coordinator(self, group: str, request: Any) -> Any:
        """Return what the coordinator answers about the one group of a request. Raises ControlError."""
        place = self.ask_reached(finding(GROUP, [group])).coordinators[0]
        if place.error_code:
            reason = place.error_message or ErrorCode(place.error_code).name
            raise ControlError(f"group {group} has no coordinator: {reason}")
        found = self._ask_alone(self.reached.other(place.host, int(place.port)), request).groups[0]
        check(found, f"group {found.group_id}: ")
        return found

    def give_up_in_time(self, address: BrokerAddress) -> None:
        """Raise Unreachable once the time of the command is over."""
        if not self._deadline.left_s(TIMEOUT_S):
            raise Unreachable(f"gave up after {self.timeout_s:g} s: {address.shown} does not answer")

    @property
    def lacks_brokers(self) -> bool:
        """Whether brokers are silent, so that what others refuse for want of them is left out."""
        return False

    def trouble_of(self, node_id: int) -> str | None:  # noqa: ARG002 - all are asked here
        """Return why a broker is not asked; None for one that is."""
        return None

    def ask_each(self, questions: Iterable[tuple[BrokerAddress | None, Any]]) -> list[Any] | None:
        """Return the answers of brokers to their questions; None where kafka-python must ask."""
        answers = []
        for address, request in questions:
            answer = self.ask(address, request)
            if answer is None:
                return None
            answers.append(answer)
        return answers

    def ask_all(self, request: Any) -> list[Any] | None:
        """Return the answers of all brokers to one question; None where kafka-python must ask."""
        questions = [(address, request) for address in self.brokers.values()]
        return self.ask_each(questions) if questions else None

    def ask_coordinators(
        self, key_type: i8, names: Iterable[str], question: Callable[[Sequence[str]], Any]
    ) -> list[Any] | None:
        """Return the answers of the coordinators of groups or transactional ids (GROUP, TRANSACTION), each to
        the question about the names that it coordinates; None where kafka-python must ask.
        """
        found = self.ask(self.any_broker, finding(key_type, names))
        if found is None or (not self.lacks_brokers and any(row.error_code for row in found.coordinators)):
            return None
        coordinated: dict[BrokerAddress, list[str]] = defaultdict(list)
        for row in (row for row in found.coordinators if not row.error_code):
            coordinated[self.reached.other(row.host, int(row.port))].append(str(row.key))
        return self.ask_each((address, question(some)) for address, some in coordinated.items())

    def ask_leaders(
        self, places: Iterable[TopicPartition], question: Callable[[Mapping[str, Sequence[int]]], Any]
    ) -> list[Any] | None:
        """Return the answers of the leaders of partitions, each to the question about those that it leads, by
        topic; None where kafka-python must ask.
        """
        if self._uses_kafka_python:
            return None  # kafka-python finds the leaders by itself
        leaders = self.leaders()
        led: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for topic, partition in places:
            led[leaders.get((topic, partition), _NOBODY)][topic].append(partition)
        return self.ask_each((self.brokers.get(node_id), question(topics)) for node_id, topics in led.items())

    def all_topics(self) -> list[dict[str, Any]]:
        """Return the metadata of all topics, by name."""
        found = self._asked_topics()
        if found is None:
            found = self.admin.describe_topics(None)
        return sorted(found, key=lambda topic: str(topic["name"]))

    @cached_property
    def brokers(self) -> Mapping[int, BrokerAddress]:
        """The addresses that brokers advertise, by node id; none where only kafka-python can ask for them."""
        found = self._asked_metadata(self.reached, ())
        return {
            int(broker.node_id): self.reached.other(broker.host, int(broker.port))
            for broker in (() if found is None else found.brokers)
        }

    @property
    def any_broker(self) -> BrokerAddress | None:
        """The reached broker if it advertises its address, or else another, as for kafka-python."""
        known = self.brokers.values()
        return self.reached if self.reached in known else next(iter(known), None)

    def _asked_metadata(self, address: BrokerAddress | None, topics: tuple[()] | None) -> Any:
        """Return the brokers, and all topics with `topics` None; None where kafka-python must ask."""
        from kio.schema.metadata.v12.request import MetadataRequest  # noqa: PLC0415

        request = MetadataRequest(
            topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        return self.ask(address, request)

    def _asked_topics(self) -> list[dict[str, Any]] | None:
        """Return the metadata as kafka-python gives it; None where kafka-python must ask."""
        found = self._asked_metadata(self.any_broker, None)
        if found is None:
            return None
        return [
            {
                "name": topic.name,
                "topic_id": topic.topic_id or NO_ID,
                "is_internal": topic.is_internal,
                "error_code": topic.error_code,
                "partitions": [
                    {
                        "partition_index": int(row.partition_index),
                        "leader_id": int(row.leader_id),
                        "replica_nodes": list(map(int, row.replica_nodes)),
                        "isr_nodes": list(map(int, row.isr_nodes)),
                        "error_code": row.error_code,
                    }
                    for row in topic.partitions
                ],
            }
            for topic in found.topics
        ]

    def existing_topics(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Return the metadata of these topics. Raises NoTopic when one does not exist."""
        by_name = {topic["name"]: topic for topic in self.all_topics()}
        for name in names:
            if name not in by_name:
                raise no_topic(name, by_name, may_be_hidden=self.reached.security is not OPEN)
        return [by_name[name] for name in names]

    def leaders(self) -> dict[TopicPartition, int]:
        """Return the leader of each partition that has one."""
        return {
            (topic["name"], row["partition_index"]): row["leader_id"]
            for topic in self.all_topics()
            for row in topic["partitions"]
            if row["error_code"] == 0 and row["leader_id"] >= 0
        }

    def offsets(
        self, places: Iterable[TopicPartition], time_ms: int, isolation: str = "read_uncommitted"
    ) -> dict[TopicPartition, int]:
        """Return partitions' offsets at a time (ms), EARLIEST or LATEST; -1: no record is so late."""
        wanted = list(places)
        if not wanted:
            return {}
        asked = self._asked_offsets(wanted, time_ms, isolation == "read_committed")
        if asked is not None:
            return asked
        found = self.admin.list_partition_offsets(
            {topic_partition(*place): time_ms for place in wanted}, isolation
        )
        return {tuple(place): int(answer.offset) for place, answer in found.items()}

    def led_partitions(
        self,
        *,
        existing_topic: str | None = None,
        existing_partition: int | None = None,
        holds: Callable[[str, bool], bool] = lambda _, is_internal: not is_internal,
    ) -> list[TopicPartition]:
        """Return partitions with a leader: of one topic, or where `holds` takes its name and internality.
        Raises ControlError for a topic or a partition that does not exist.
        """
        if existing_topic is None:
            topics = [row for row in self.all_topics() if holds(row["name"], row["is_internal"])]
        else:
            topics = self.existing_topics([existing_topic])
        rows = [(found["name"], row) for found in topics for row in found["partitions"]]
        if existing_partition is not None:
            rows = [(name, row) for name, row in rows if row["partition_index"] == existing_partition]
            if not rows:
                raise ControlError(f"topic {existing_topic} has no partition {existing_partition}")
        return [
            (name, row["partition_index"])
            for name, row in rows
            if row["error_code"] == 0 and row["leader_id"] >= 0
        ]

    def unled_partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic without a leader, in order; none of a topic that is not there."""
        return sorted(
            row["partition_index"]
            for found in self.all_topics()
            if found["name"] == topic
            for row in found["partitions"]
            if row["error_code"] or row["leader_id"] < 0
        )

    def starts(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offsets of partitions, all of which must have a leader."""
        return self.offsets(places, EARLIEST)

    def ends(
        self, places: Iterable[TopicPartition], isolation: str = "read_uncommitted"
    ) -> dict[TopicPartition, int]:
        """Return the high watermarks, or last stable offsets, of partitions, which must have a leader."""
        return self.offsets(places, LATEST, isolation)

    def spans(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the log start and the log end of partitions; none of any where a leader does not answer."""
        from kafka.errors import KafkaError  # noqa: PLC0415

        wanted = list(places)
        try:
            starts, ends = self.starts(wanted), self.ends(wanted)
        except KafkaError:
            return {}
        return {place: (starts[place], ends[place]) for place in wanted if place in starts and place in ends}

    def _asked_offsets(
        self, places: Sequence[TopicPartition], time_ms: int, is_committed: bool
    ) -> dict[TopicPartition, int] | None:
        """Return the offsets that the leaders answer; None where kafka-python must ask."""
        from kio.schema.list_offsets.v6 import request as listing  # noqa: PLC0415

        def question(topics: Mapping[str, Sequence[int]]) -> Any:
            return listing.ListOffsetsRequest(
                replica_id=BrokerId(-1),
                isolation_level=i8(is_committed),
                topics=tuple(
                    listing.ListOffsetsTopic(
                        name=TopicName(topic),
                        partitions=tuple(
                            listing.ListOffsetsPartition(partition_index=i32(index), timestamp=i64(time_ms))
                            for index in partitions
                        ),
                    )
                    for topic, partitions in topics.items()
                ),
            )

        answers = self.ask_leaders(places, question)
        found = {}
        for row in (row for answer in answers or () for row in answer.topics):
            for each in row.partitions:
                if each.error_code:
                    if self.lacks_brokers:
                        continue
                    return None
                found[str(row.name), int(each.partition_index)] = int(each.offset)
        return None if answers is None else found

    def broker_ids(self) -> list[int]:
        """Return the node ids of the brokers."""
        answer = self.ask(self.any_broker, all_brokers())
        if answer is None:
            return sorted(int(broker["broker_id"]) for broker in self.admin.describe_cluster()["brokers"])
        return sorted(int(broker.broker_id) for broker in answer.brokers)

    def client_settings(self) -> dict[str, Any]:
        """Return the settings that clients of this cluster share."""
        timeout_ms = sys.maxsize if self.timeout_s is None else int(self.timeout_s * 1000)
        return {
            "bootstrap_servers": list(self.addresses),
            "client_id": CLIENT_ID,
            "bootstrap_timeout_ms": min(timeout_ms, BOOTSTRAP_TIMEOUT_MS),
            "request_timeout_ms": min(timeout_ms, REQUEST_TIMEOUT_MS),
            "reconnect_backoff_max_ms": RECONNECT_MS,
            "metrics_enabled": False,
            "kafka_client": partial(_client, self.watch, self._read_timeout_s),
            **self.reached.security.client_settings(),
        }


def all_brokers() -> Any:
    """Return the request for all registered brokers, those that have ended too."""
    from kio.schema.describe_cluster.v2.request import DescribeClusterRequest  # noqa: PLC0415 - slow to import

    return DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=_BROKERS, include_fenced_brokers=True
    )


@contextmanager
def connected(
    addresses: Sequence[tuple[str, int]],
    security: ClientSecurity = OPEN,
    *,
    lasts: bool = False,
    watch: Watch | None = None,
    timeout_s: float | None = None,
    read_timeout_s: float | None = None,
) -> Iterator[Cluster]:
    """Yield the cluster at these addresses, connected by `security`. Raises ControlError for any error.
    `lasts`: kafka-python, which opens lost connections again, asks all. `watch` is as in
    Cluster; `timeout_s` is its deadline. `read_timeout_s` is how long kafka-python waits for one broker that
    lists or describes; None: as long as for a change.
    """
    watch = watch or Watch()
    deadline = Deadline(timeout_s)
    share_s = deadline.left_s(CONNECT_TIMEOUT_S * len(addresses)) / len(addresses)

    def greet_watched(address: BrokerAddress) -> tuple[BrokerAddress, dict[int, int] | None, socket.socket]:
        asked = watch.asks(address.shown)
        answer = None
        try:
            answer = greet(address, share_s, is_last=(address.host, address.port) == addresses[-1])
            return answer
        finally:
            watch.answered(asked, well=answer is not None and answer[1] is not None)

    reached, versions, connection = first_that_answers(
        [BrokerAddress(*address, security, timeout_s) for address in addresses], greet_watched
    )
    names = tuple(shown_address(*address) for address in addresses)
    if versions is not None:
        deadline.answered()
    cluster = Cluster(names, reached, versions, connection, watch, deadline, read_timeout_s)
    try:
        if versions is None:
            cluster.give_up_in_time(reached)
        if lasts or versions is None:
            _ = cluster.admin  # tries again where nobody answered
        yield cluster
    except Exception as error:
        told = _told(reached, error, watch.trouble)
        if told is None:
            raise
        raise told from error
    finally:
        cluster.close()


def _admin_client(reached: BrokerAddress, settings: Mapping[str, Any], watch: Watch) -> Any:
    """Return kafka-python's admin client. Raises ControlError."""
    from kafka.errors import KafkaError  # noqa: PLC0415

    from seqgate.gateway.admin.remote.admin_client import AdminClient  # noqa: PLC0415 - slow to import

    given = {**settings, "bootstrap_servers": [reached.shown]}
    del given["metrics_enabled"]  # of producers and consumers only
    try:
        return opened(AdminClient, **given)
    except KafkaError as error:
        if watch.trouble is not None:
            raise Unreachable(f"gave up: {watch.trouble}") from error
        raise ControlError(
            f"{reached.shown} accepts connections, but does not answer over the Kafka protocol: "
            f"{sentence(error)}{_ADVICE[reached.security is OPEN]}"
        ) from error


def _told(reached: BrokerAddress, error: Exception, trouble: str | None) -> ControlError | None:
    """Return the error of a command for an error of kafka-python; None for another. `trouble` is what was
    wrong last.
    """
    if "kafka" not in sys.modules:
        return None
    from kafka import errors  # noqa: PLC0415

    if isinstance(error, errors.KafkaTimeoutError | errors.RequestTimedOutError) and trouble is not None:
        return Unreachable(f"gave up: {trouble}")
    if isinstance(error, errors.KafkaConnectionError | errors.NodeNotReadyError):
        return Unreachable(
            f"{reached.shown} answers, but the address that it advertises to clients can't be reached: "
            f"{sentence(error)}; check advertised.listeners of the cluster"
        )
    if isinstance(error, errors.KafkaTimeoutError | errors.RequestTimedOutError):
        return Unreachable(sentence(error))
    return ControlError(sentence(error)) if isinstance(error, errors.KafkaError) else None


def first_that_answers(addresses: Iterable[BrokerAddress], ask: Callable[[BrokerAddress], R]) -> R:
    """Return what `ask` returns for the first address that answers. Raises ControlError when none does."""
    reasons = []
    for address in addresses:
        try:
            return ask(address)
        except OSError as error:
            reason = "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
            reasons.append(f"{address.shown} ({reason})")
    raise Unreachable(
        f"nothing answers at {', '.join(reasons)}; start a gateway there, or name another address with "
        "--bootstrap"
    )


def topic_partition(topic: str, partition: int) -> Any:
    """Return a partition as kafka-python names it."""
    import kafka  # noqa: PLC0415

    return kafka.TopicPartition(topic, partition)


# Makes and ends clients of kafka-python.


def opened(kind: Callable[..., C], **settings: Any) -> C:
    """Return a client of this kind. Raises an error of kafka-python, and ControlError without the library of
    a codec. A constructor of kafka-python 3.0 that fails leaves its thread and its connections behind; this
    closes them.
    """
    import logging  # noqa: PLC0415 - only for kafka-python

    from kafka.net.compat import KafkaNetClient  # noqa: PLC0415

    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # a command prints one sentence for an error
    made: list[Any] = []
    make = settings.pop("kafka_client", KafkaNetClient)

    def network(**given: Any) -> Any:
        made.append(make(**given))
        return made[-1]

    try:
        return kind(kafka_client=network, **settings)
    except BaseException as error:
        for each in made:
            each.close()
        if isinstance(error, RuntimeError) and "codec not found" in str(error):
            raise ControlError(f"{error}; run: pip install 'seqgate[codecs]'") from None
        raise


def _client(watch: Watch, read_timeout_s: float | None, **given: Any) -> Any:
    """Return the network client of kafka-python, which tries again by itself and tells nobody; `watch` learns
    of each request, lost connection and refusal. `read_timeout_s` is as in `connected`.
    """
    from kafka import errors  # noqa: PLC0415
    from kafka.net.compat import KafkaNetClient  # noqa: PLC0415
    from kafka.net.manager import KafkaConnectionManager  # noqa: PLC0415
    from kafka.net.selector import NetworkSelector  # noqa: PLC0415

    watched: WeakSet[Any] = WeakSet()
    limits_ms = {} if read_timeout_s is None else dict.fromkeys(_READS, read_timeout_s * 1000)

    class Manager(KafkaConnectionManager):  # type: ignore[misc]  # it has no types
        def get_connection(self, node_id: Any, *places: Any, **given: Any) -> Any:
            connection = super().get_connection(node_id, *places, **given)
            if connection not in watched:
                watched.add(connection)
                broker = self.cluster.broker_metadata(node_id)
                # A client's first connection, too, and one that is idle: no request tells of their loss.
                place = shown_address(broker.host, broker.port)
                connection.close_future.add_errback(partial(lost, place, connection.init_future))
            return connection

        def send(self, request: Any, node_id: Any = None, request_timeout_ms: Any = None) -> Any:
            node_id = self.least_loaded_node() if node_id is None else node_id
            broker = None if node_id is None else self.cluster.broker_metadata(node_id)
            future = super().send(request, node_id, request_timeout_ms or limits_ms.get(request.API_KEY))
            if broker is None or future.is_done:
                return future
            address = shown_address(broker.host, broker.port)
            if request.API_KEY in _OF_MEMBERS:
                return future
            asked = watch.asks(address)

            def answered(response: Any) -> None:
                watch.answered(asked)
                watch.ends(_CONNECTION, address)
                for about, refused in _refusals(response):
                    if refused is None:
                        watch.ends(about, address)
                    else:
                        watch.begins(about, address, f"{address} refuses: {refused}")

            return future.add_callback(answered).add_errback(lambda _: watch.answered(asked, well=False))

    def lost(address: str, greeted: Any, error: Exception) -> None:
        if isinstance(error, errors.RequestTimedOutError):
            watch.begins(_CONNECTION, address, f"{address} does not answer")
        elif isinstance(error, errors.KafkaConnectionError) and (
            # Who hangs up on a greeting may be no broker, or want a login: the end of the command says so.
            greeted.succeeded() or "ECONNREFUSED" in str(error)
        ):
            watch.begins(_CONNECTION, address, f"lost {address} ({sentence(error)})")

    net = NetworkSelector(**given)
    return KafkaNetClient(net, Manager(net, **given))


_CONNECTION: Final = "connection"
_OF_MEMBERS: Final = frozenset((11, 12, 13, 14))
"""JoinGroup, Heartbeat, LeaveGroup and SyncGroup, whose answers wait for other members, or refuse as a matter
of course.
"""
_READS: Final = frozenset((3, 15, 16, 60, 61, 65, 66, 69))
"""Metadata, DescribeGroups, ListGroups, DescribeCluster, DescribeProducers, DescribeTransactions,
ListTransactions and ConsumerGroupDescribe, which change nothing and are answered at once.
"""


def _refusals(response: Any) -> Iterator[tuple[str, str | None]]:
    """Yield a refusal, or None, for the answer to Produce or Fetch and each partition in it."""
    code = getattr(response, "error_code", None)
    if code is not None:
        yield f"API {response.API_KEY}", refusal(code, getattr(response, "error_message", None))
    for topic in getattr(response, "responses", None) or ():
        for row in getattr(topic, "partition_responses", None) or getattr(topic, "partitions", None) or ():
            index = row.index if hasattr(row, "index") else row.partition_index
            yield (
                f"{getattr(topic, 'name', None) or getattr(topic, 'topic', '')}-{index}",
                refusal(row.error_code, getattr(row, "error_message", None)),
            )


def give_up(producer: KafkaProducer) -> None:
    """Close a producer that has records which are not acknowledged, and send them no more.
    `KafkaProducer.close(timeout=0)` of kafka-python 3.0 raises an error then, and leaves the producer open.
    """
    sender = producer._sender  # noqa: SLF001 - there is no public way to send nothing more
    sender.force_close()
    sender.join()
    producer.close(timeout=0)


# Runs answers that are written once for a cluster and for a running gateway.


def finished(work: Coroutine[Any, Any, R]) -> R:
    """Return the result of a coroutine that waits for nothing but the network, where the thread waits."""
    while True:
        try:
            work.send(None)
        except StopIteration as end:
            result: R = end.value
            return result


# Sentences for the errors of the Kafka protocol, as kafka-python reports them.


_TEXT_OF_ERROR: Final = re.compile(r"\[Error (?P<code>-?\d+)\] \w+(?:: (?P<message>.*))?", re.DOTALL)
_SYSTEM_ERROR: Final = re.compile(r"\b(\d{1,3}) E[A-Z]+\b|\[Errno (\d{1,3})\]", re.ASCII)
"""The text of kafka-python for a failed system call, `111 ECONNREFUSED`, and Python's, `[Errno 104] …`."""
_LONGEST: Final = 500


def refusal(code: int, message: str | None = None) -> str | None:
    """Return a sentence for an error code with the broker's message; None for code 0."""
    if code == 0:
        return None
    text = (message or _description(code) or "The request failed.").strip().rstrip(".")
    return f"{text} ({_name(code)})"


def _name(code: int) -> str:
    """Return Kafka's name of an error code."""
    for kind in (ErrorCode, LaterErrorCode):
        with suppress(ValueError):
            return kind(code).name.upper()
    return f"error {code}"


def _description(code: int) -> str | None:
    from kafka import errors  # noqa: PLC0415 - for an error without a message

    known = errors.kafka_errors.get(code)
    return None if known is None else str(known.description)


def check(answer: Any, what: str = "") -> None:
    """Raise ControlError if an answer, or a part, has an error code. `what` begins the sentence."""
    refused = refusal(answer.error_code, getattr(answer, "error_message", None))
    if refused is not None:
        raise ControlError(f"{what}{refused}")


def refusal_of_text(text: str) -> str | None:
    """Return a sentence for a result that kafka-python gives as text: `OK`, or an error with its number."""
    if text == "OK":
        return None
    match = _TEXT_OF_ERROR.fullmatch(text)
    return text if match is None else refusal(int(match["code"]), match["message"])


def sentence(error: Exception) -> str:
    """Return a sentence for an exception of kafka-python."""
    from kafka import errors  # noqa: PLC0415

    code = getattr(error, "errno", None)
    if isinstance(error, errors.TopicAuthorizationFailedError):
        return _topics_refused(error)
    message = " ".join(str(argument) for argument in error.args if argument not in (None, "None"))
    if isinstance(error, errors.BrokerResponseError) and code is not None:
        # kafka-python quotes whole answers in its messages.
        quotes = "Response(" in message or "Request" in message
        return refusal(code, None if quotes else message) or message
    if isinstance(error, errors.KafkaTimeoutError):
        return f"the cluster did not answer in time: {message}"[:_LONGEST]
    if isinstance(error, errors.IncompatibleBrokerVersion | errors.UnsupportedVersionError):
        return f"the cluster does not serve what this command needs: {message}"[:_LONGEST]
    failed = _SYSTEM_ERROR.search(message)
    if failed is not None:
        return os.strerror(int(failed[1] or failed[2])).lower()
    return (message or type(error).__name__)[:_LONGEST]


def _topics_refused(error: Exception) -> str:
    """Return a sentence with the topics; kafka-python gives them as a set, or not at all."""
    given = error.args[0] if error.args else None
    topics = sorted(map(str, given)) if isinstance(given, set | frozenset | list | tuple) else []
    named = f"topic {', '.join(topics)}" if topics else "the topic"
    return f"this user lacks a right on {named} (TOPIC_AUTHORIZATION_FAILED); seqgate acls add gives rights"


class NoTopic(ControlError):
    """There is no such topic."""

    def __init__(self, sentence: str, topic: str) -> None:
        super().__init__(sentence)
        self.topic = topic


def no_topic(topic: str, names: Iterable[str], *, may_be_hidden: bool = False) -> NoTopic:
    """Return the error for a missing, perhaps hidden topic, with the name of the most similar topic."""
    hidden = ", or this user may not see it" if may_be_hidden else ""
    return NoTopic(f"there is no topic {topic}{hidden}{nearest_hint(topic, names)}", topic)
