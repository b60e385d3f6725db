"""The connection of a command to a cluster: questions and changes with kio's schemas, and the clients of
kafka-python that produce and consume. Every function raises ControlError; an error of kafka-python becomes a
sentence.

kafka-python takes longer to import than most commands to run, so it is imported when it is first needed.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from uuid import UUID
from weakref import WeakSet

from kio.schema.errors import ErrorCode
from kio.static.primitive import i8

from seqgate.gateway.admin.remote.addresses import parse_addresses, shown_address
from seqgate.gateway.admin.remote.broker import (
    GROUP,
    TIMEOUT_S,
    BrokerAddress,
    HungUp,
    KeptConnections,
    Unanswered,
    ask_broker,
    finding,
    greet,
    open_connection,
    reason_of,
)
from seqgate.gateway.admin.remote.client_security import OPEN, ClientSecurity
from seqgate.gateway.admin.remote.waiting import Deadline, Watch
from seqgate.gateway.admin.request import ControlError, Unreachable, nearest_hint
from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.protocol.kafka_4_4 import LaterErrorCode, api_name
from seqgate.gateway.protocol.messages import build_request

if TYPE_CHECKING:
    from kafka import KafkaProducer

CLIENT_ID: Final = "seqgate"
CONNECT_TIMEOUT_S: Final = 5.0
"""Time for a TCP connection to one address, and for the first answer over it."""
BOOTSTRAP_TIMEOUT_S: Final = 10.0
"""Time for the first answer over the Kafka protocol."""
RECONNECT_S: Final = 0.5
"""The longest pause between two attempts to connect."""
PATIENCE_S: Final = 5.0
"""Time for which a question is repeated that a broker refuses for now, if the command has no deadline."""
PAUSE_S: Final = 0.1
"""The pause before such a question is repeated."""
TOPICS_TIMEOUT_S: Final = 10.0
"""Time for the partitions of new topics to get their leaders."""
_PASSING: Final = frozenset(
    {
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.not_controller,
        ErrorCode.concurrent_transactions,
    }
)
"""The errors of a broker that is about to know the answer, or after which another one has it."""
_PASSING_FOR_QUESTIONS: Final = _PASSING | {
    ErrorCode.offset_not_available,
    ErrorCode.fenced_leader_epoch,
    ErrorCode.unknown_leader_epoch,
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.kafka_storage_error,
}
"""Those after which a question is repeated, but no change."""

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
_REFUSAL: Final = "refusal"
_CLUSTER: Final = "the cluster"
_NAMED: Final = (("groups", "group_id"), ("results", "group_id"), ("transaction_states", "transactional_id"))
"""The rows of coordinators' answers, and the name in a row."""

C = TypeVar("C")
K = TypeVar("K")
R = TypeVar("R")


def _code_of(row: Any) -> int:
    """Return the error of a row; an answer without an error of its own has those of its partitions."""
    if hasattr(row, "error_code"):
        return int(row.error_code)
    codes = (int(each.error_code) for topic in getattr(row, "topics", ()) for each in topic.partitions)
    return next(filter(None, codes), 0)


class Cluster:
    """A cluster that answered: the addresses given, and the one reached. It keeps a connection to each broker
    that was asked. One thread uses it.
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
        """Take the newest version of each API that the broker serves, and the connection that asked for it.
        `watch` learns what is wrong meanwhile. `deadline` is how long a command tries, None: as long as it
        thinks fit. `read_timeout_s` is as in `connected`.
        """
        self.watch = watch or Watch()
        self._deadline = deadline or Deadline(None)
        self.timeout_s = self._deadline.limit_s
        self._read_timeout_s = read_timeout_s
        self.addresses = addresses
        self.reached = reached
        self._versions = versions or {}
        self._connections = KeptConnections(self._opened)
        self._silent: set[BrokerAddress] = set()
        """The brokers that did not answer what any of them could."""
        self._last_brokers: tuple[BrokerAddress, ...] = ()
        """The brokers that were known before the last `forget_brokers`."""
        if connection is not None:
            self._connections.keep(reached, connection)

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()

    def serves(self, api_key: int, version: int) -> bool:
        """Return whether the brokers know a version of an API, or a later one."""
        return self._versions.get(api_key, -1) >= version

    def request(self, api_key: int, newest: int, oldest: int = 0, /, **fields: Any) -> Any:
        """Return a request in the `newest` version, or an earlier one that the brokers serve; it leaves out
        the fields that an earlier version lacks. A broker has as long for a change as the command waits.
        Raises ControlError where they only serve versions before the `oldest` one that can carry what is
        asked.
        """
        self._check_served(api_key, oldest)
        limit = timedelta(seconds=self.timeout_s or TIMEOUT_S)
        return build_request(api_key, min(newest, self._versions[api_key]), timeout=limit, **fields)

    def _check_served(self, api_key: int, version: int) -> None:
        if not self.serves(api_key, version):
            raise ControlError(
                f"the cluster does not serve what this command needs: {api_name(api_key)} version {version}"
            )

    def ask(self, address: BrokerAddress, request: Any, *, is_change: bool = False) -> Any:
        """Return the answer of a broker. A change is sent once, over a connection of its own. Otherwise a
        connection that was lost is opened again. Raises Unreachable without an answer, and Refused for one
        that is an error.
        """
        read_s = None if is_change else self._read_timeout_s
        return self._ask(address, request, read_s or self.timeout_s or TIMEOUT_S, is_change=is_change)

    def ask_any(self, request: Any) -> Any:
        """Return the answer of a broker to what all know: the reached one if it advertises its address, or
        else the first other one that answers, as for clients. Raises as `ask`.
        """
        return self._ask_first(self._any_brokers(), request)

    def _ask_first(self, addresses: Sequence[BrokerAddress], request: Any) -> Any:
        """Return the answer of the first of these brokers that gives one. Raises as `ask`."""
        *others, last = addresses
        for address in others:
            try:
                return self._ask(address, request, self._read_timeout_s or CONNECT_TIMEOUT_S)
            except Unreachable:
                if self._deadline.is_over:
                    raise
                self._silent.add(address)
        return self.ask(last, request)

    def _ask(self, address: BrokerAddress, request: Any, limit_s: float, *, is_change: bool = False) -> Any:
        self._check_served(request.__api_key__, request.__version__)
        left_s = self._deadline.left_s(limit_s)
        try:
            with self.watch.asking(address.shown):
                answer = self._connections.ask(address, request, left_s, is_new=is_change)
        except OSError as error:
            raise _gave_up(self._deadline, address) or Unreachable(
                f"the broker at {address.shown} did not answer: {reason_of(error)}"
            ) from error
        self._deadline.answered()
        check(answer)
        return answer

    def _opened(self, address: BrokerAddress) -> socket.socket:
        limit_s = min(BOOTSTRAP_TIMEOUT_S, self._read_timeout_s or BOOTSTRAP_TIMEOUT_S)
        try:
            return open_connection(address, self._deadline.left_s(limit_s))
        except OSError as error:
            if address == self.reached or self.reached in self._silent:
                raise
            told = _gave_up(self._deadline, address) or _not_at(self.reached, reason_of(error).lower())
            raise told from error

    def ask_reached(self, request: Any, *, timeout_s: float | None = None) -> Any:
        """Return the answer of the reached broker over a connection of its own. Raises ControlError."""
        with self.watch.asking(self.reached.shown):
            return ask_broker(self.reached, request, timeout_s=timeout_s or self.timeout_s or TIMEOUT_S)

    @property
    def lacks_brokers(self) -> bool:
        """Whether brokers are silent, so that what others refuse for want of them is left out."""
        return False

    def trouble_of(self, node_id: int) -> str | None:  # noqa: ARG002 - all are asked here
        """Return why a broker is not asked; None for one that is."""
        return None

    def ask_each(
        self, questions: Mapping[BrokerAddress, Any], *, is_change: bool = False
    ) -> dict[BrokerAddress, Any]:
        """Return the answers of brokers to their questions. Raises as `ask`, but not where another broker has
        carried out its part of a change: then the answer of the one that gives none is `_Silent`.
        """
        answers: dict[BrokerAddress, Any] = {}
        for address, request in questions.items():
            try:
                answers[address] = self.ask(address, request, is_change=is_change)
            except Unreachable as error:
                if not (is_change and answers):
                    raise
                answers[address] = _Silent(str(error))
                self._deadline.answered()  # the next one has its own time
        return answers

    def ask_all(self, request: Any) -> list[Any]:
        """Return the answers of all brokers to one question. Raises as `ask`."""

        def asked(_: object) -> dict[int, Any]:
            return dict(enumerate(self.ask_each(dict.fromkeys(self.brokers.values(), request)).values()))

        return list(self._settled([0], asked).values())

    def ask_controller(self, request: Any, rows: str) -> list[Any]:
        """Return the rows of the controller's answer to a change; any broker passes it on where nobody knows
        the controller. Raises as `ask`.
        """

        def asked(_: object) -> dict[int, Any]:
            controller = int(self.ask_any(self.metadata_request(())).controller_id)
            address = self.brokers.get(controller, self.any_broker)
            return dict(enumerate(getattr(self.ask(address, request, is_change=True), rows)))

        return list(self._settled([0], asked, is_change=True).values())

    def ask_coordinator(
        self,
        name: str,
        request: Any,
        key_type: i8 = GROUP,
        *,
        is_change: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> Any:
        """Return what the coordinator answers about the one group or transactional id of a request. Raises
        ControlError.
        """
        answers = self.ask_coordinators(
            key_type, [name], lambda _: request, is_change=is_change, patience_s=patience_s
        )
        what = f"group {name}" if key_type == GROUP else f"transactional id {name}"
        if name not in answers:
            raise Unreachable(f"{what}: its coordinator does not answer")
        check(answers[name], f"{what}: ")
        return answers[name]

    def ask_coordinators(
        self,
        key_type: i8,
        names: Iterable[str],
        question: Callable[[Sequence[str]], Any],
        *,
        is_change: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> dict[str, Any]:
        """Return the answer about each group or transactional id (GROUP, TRANSACTION); each coordinator gets
        the question about the names that it coordinates. An answer may have an error, or be that of
        FindCoordinator where it has one.
        """

        def asked(left: Sequence[str]) -> dict[str, Any]:
            found = self.coordinators(key_type, left)
            coordinated: dict[BrokerAddress, list[str]] = defaultdict(list)
            for name, row in found.items():
                if not row.error_code:
                    coordinated[self.reached.other(row.host, int(row.port))].append(name)
            rows = {} if self.lacks_brokers else {name: row for name, row in found.items() if row.error_code}
            questions = {address: question(some) for address, some in coordinated.items()}
            for address, answer in self.ask_each(questions, is_change=is_change).items():
                rows |= by_name(answer, coordinated[address])
            return rows

        return self._settled(names, asked, is_change=is_change, patience_s=patience_s)

    def coordinators(self, key_type: i8, names: Sequence[str]) -> dict[str, Any]:
        """Return what FindCoordinator answers about each name; before Kafka 3.0 it takes one at a time."""
        if self.serves(10, 4):
            found = self.ask_any(finding(key_type, names))
            return {str(row.key): row for row in found.coordinators}
        questions = {name: self.request(10, 3, key_type=key_type, key=name) for name in names}
        return {name: self.ask_any(question) for name, question in questions.items()}

    def ask_leaders(
        self,
        places: Iterable[TopicPartition],
        question: Callable[[Mapping[str, Sequence[int]]], Any],
        *,
        is_change: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> dict[TopicPartition, Any]:
        """Return the answer about each partition; each leader gets the question about those that it leads, by
        topic. Raises Refused for an answer that is an error, except where `lacks_brokers`.
        """

        def asked(left: Sequence[TopicPartition]) -> dict[TopicPartition, Any]:
            leaders = self.leaders()
            led: dict[BrokerAddress, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
            for topic, partition in left:
                address = self.brokers.get(leaders.get((topic, partition), _NOBODY))
                if address is not None:
                    led[address][topic].append(partition)
                elif not self.lacks_brokers:
                    raise Refused(f"{topic}-{partition} has no leader now", ErrorCode.leader_not_available)
            questions = {address: question(topics) for address, topics in led.items()}
            rows: dict[TopicPartition, Any] = {}
            for address, answer in self.ask_each(questions, is_change=is_change).items():
                if isinstance(answer, _Silent):
                    rows |= {(topic, each): answer for topic in led[address] for each in led[address][topic]}
                    continue
                rows |= {
                    (str(topic.name), int(row.partition_index)): row
                    for part in getattr(answer, "markers", (answer,))
                    for topic in part.topics
                    for row in topic.partitions
                }
            return rows

        found = self._settled(places, asked, is_change=is_change, patience_s=patience_s)
        if self.lacks_brokers:
            return {place: row for place, row in found.items() if not row.error_code}
        well = sorted((topic, each) for (topic, each), row in found.items() if not row.error_code)
        done = f"; done in {', '.join(f'{topic}-{each}' for topic, each in well)}" if well else ""
        for (topic, partition), row in found.items():
            if row.error_code == ErrorCode.topic_authorization_failed:
                raise Refused(lacks_right([topic]), row.error_code)
            check(row, f"{topic}-{partition}: ", done if is_change else "")
        return found

    def _settled(
        self,
        names: Iterable[K],
        ask: Callable[[Sequence[K]], dict[K, Any]],
        *,
        is_change: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> dict[K, Any]:
        """Return what `ask` returns about each name. Where that is an error that passes, or a broker gives no
        answer to what is no change, ask again, with new metadata, until the time for it is over.
        """
        found: dict[K, Any] = {}
        left = list(names)
        if not left:
            return found
        passing = _PASSING if is_change else _PASSING_FOR_QUESTIONS
        end_s = time.monotonic() + self._deadline.left_s(patience_s and (self.timeout_s or patience_s))
        while left:
            try:
                rows = ask(left)
            except (Refused, Unreachable) as error:
                # a page does not wait for a broker that is not there
                is_asked_again = not is_change and self._read_timeout_s is None
                passes = error.code in passing if isinstance(error, Refused) else is_asked_again
                if not passes or self.lacks_brokers or time.monotonic() >= end_s:
                    if not is_change or all(map(_code_of, found.values())):
                        raise
                    # an earlier turn has carried out a part, which must be told
                    code = error.code if isinstance(error, Refused) else ErrorCode.network_exception
                    found |= dict.fromkeys(left, _Silent(str(error), code))
                    break
                reason = str(error)
            else:
                asked = set(left)
                found |= {name: row for name, row in rows.items() if name in asked or name not in found}
                refused = {name: _code_of(row) for name, row in found.items()}
                left = [name for name, code in refused.items() if code in passing]
                if not left or self.lacks_brokers or time.monotonic() >= end_s:
                    break
                reason = f"{_CLUSTER} refuses: {refusal(refused[left[0]])}"
            self.watch.begins(_REFUSAL, _CLUSTER, reason)
            time.sleep(PAUSE_S)
            self.forget_brokers()
        self.watch.ends(_REFUSAL, _CLUSTER)
        return found

    def all_topics(self) -> list[Any]:
        """Return the metadata of all topics, by name."""
        found = self.ask_any(self.metadata_request(None))
        return sorted(found.topics, key=lambda topic: str(topic.name))

    @cached_property
    def brokers(self) -> Mapping[int, BrokerAddress]:
        """The addresses that brokers advertise, by node id. The reached broker tells them; where it has
        ended, another one that was known before, or is at one of the addresses given.
        """
        given = (self.reached.other(*each) for each in parse_addresses(",".join(self.addresses)))
        asked = list(dict.fromkeys((self.reached, *self._last_brokers, *given)))
        return {
            int(broker.node_id): self.reached.other(broker.host, int(broker.port))
            for broker in self._ask_first(asked, self.metadata_request(())).brokers
        }

    def forget_brokers(self) -> None:
        """Ask for the addresses again when they are needed: brokers come and go."""
        self._last_brokers = tuple(self.__dict__.pop("brokers", {}).values()) or self._last_brokers
        self._silent.clear()

    def broker(self, node_id: int) -> BrokerAddress:
        """Return the address of a broker. Raises ControlError for one that is registered and does not run."""
        if node_id not in self.brokers:
            raise ControlError(f"broker {node_id} does not run; start it first")
        return self.brokers[node_id]

    @property
    def any_broker(self) -> BrokerAddress:
        """The reached broker if it advertises its address, or else another, as clients ask."""
        return self._any_brokers()[0]

    def _any_brokers(self) -> list[BrokerAddress]:
        """Return the brokers in the order in which they are asked what all know."""
        known = sorted(self.brokers.values(), key=lambda each: (each in self._silent, each != self.reached))
        return known or [self.reached]

    def metadata_request(self, names: Sequence[str] | None) -> Any:
        """Return the question for the brokers and the named topics, all topics with None."""
        topics = None if names is None else [{"topic_id": None, "name": name} for name in names]
        return self.request(
            3,
            12,
            10,
            topics=topics,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )

    def await_leaders(self, names: Sequence[str]) -> None:
        """Wait until the new topics that this user sees have leaders. Raises Unreachable after a while."""
        end_s = time.monotonic() + TOPICS_TIMEOUT_S
        while time.monotonic() < end_s:
            with suppress(ControlError):
                topics = self.ask_any(self.metadata_request(names)).topics
                seen = [each for each in topics if each.error_code != ErrorCode.topic_authorization_failed]
                if all(topic.partitions and all(map(is_led, topic.partitions)) for topic in seen):
                    return
            time.sleep(PAUSE_S)
        raise Unreachable(
            "the cluster did not answer in time: the topics are created, but not all of their partitions "
            f"have a leader after {TOPICS_TIMEOUT_S:g} s"
        )

    def existing_topics(self, names: Sequence[str]) -> list[Any]:
        """Return the metadata of these topics. Raises NoTopic: there is no topic X."""
        by_name = {topic.name: topic for topic in self.all_topics()}
        for name in names:
            if name not in by_name:
                raise no_topic(name, by_name, may_be_hidden=self.reached.security is not OPEN)
        return [by_name[name] for name in names]

    def leaders(self) -> dict[TopicPartition, int]:
        """Return the leader of each partition that has one."""
        return {
            (topic.name, row.partition_index): row.leader_id
            for topic in self.all_topics()
            for row in topic.partitions
            if is_led(row)
        }

    def offsets(
        self,
        places: Iterable[TopicPartition],
        time_ms: int,
        isolation: str = "read_uncommitted",
        *,
        patience_s: float = PATIENCE_S,
    ) -> dict[TopicPartition, int]:
        """Return partitions' offsets at a time (ms), EARLIEST or LATEST; -1: no record is so late."""

        def question(topics: Mapping[str, Sequence[int]]) -> Any:
            return self.request(
                2,
                6,
                replica_id=_NOBODY,
                isolation_level=int(isolation == "read_committed"),
                topics=[
                    {
                        "name": topic,
                        "partitions": [{"partition_index": index, "timestamp": time_ms} for index in indexes],
                    }
                    for topic, indexes in topics.items()
                ],
            )

        found = self.ask_leaders(places, question, patience_s=patience_s)
        return {place: int(row.offset) for place, row in found.items()}

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
            topics = [row for row in self.all_topics() if holds(row.name, row.is_internal)]
        else:
            topics = self.existing_topics([existing_topic])
        rows = [(found.name, row) for found in topics for row in found.partitions]
        if existing_partition is not None:
            rows = [(name, row) for name, row in rows if row.partition_index == existing_partition]
            if not rows:
                raise ControlError(f"topic {existing_topic} has no partition {existing_partition}")
        return [(name, row.partition_index) for name, row in rows if is_led(row)]

    def unled_partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic without a leader, in order; none of a topic that is not there."""
        return sorted(
            row.partition_index
            for found in self.all_topics()
            if found.name == topic
            for row in found.partitions
            if not is_led(row)
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
        wanted = list(places)
        try:
            starts, ends = (self.offsets(wanted, each, patience_s=0.0) for each in (EARLIEST, LATEST))
        except ControlError:
            if self._deadline.is_over:
                raise
            self._deadline.answered()
            return {}
        return {place: (starts[place], ends[place]) for place in wanted if place in starts and place in ends}

    def broker_ids(self) -> list[int]:
        """Return the node ids of the brokers, with those that have ended where the cluster tells them."""
        answer = self.ask_any(self.brokers_request())
        return sorted(int(broker.broker_id) for broker in answer.brokers)

    def first_broker_id(self) -> int:
        """Return the lowest node id of the brokers that run; of all, where the cluster tells of none."""
        node_ids = self.broker_ids()
        return next((node_id for node_id in node_ids if node_id in self.brokers), node_ids[0])

    def brokers_request(self) -> Any:
        """Return the request for all registered brokers; from version 2 on also those that have ended."""
        return self.request(
            60,
            2,
            include_cluster_authorized_operations=False,
            endpoint_type=_BROKERS,
            include_fenced_brokers=True,
        )

    def client_settings(self) -> dict[str, Any]:
        """Return the settings that clients of this cluster share."""
        timeout_ms = sys.maxsize if self.timeout_s is None else int(self.timeout_s * 1000)
        return {
            "bootstrap_servers": list(self.addresses),
            "client_id": CLIENT_ID,
            "bootstrap_timeout_ms": min(timeout_ms, int(BOOTSTRAP_TIMEOUT_S * 1000)),
            "request_timeout_ms": min(timeout_ms, int(TIMEOUT_S * 1000)),
            "reconnect_backoff_max_ms": int(RECONNECT_S * 1000),
            "metrics_enabled": False,
            "kafka_client": partial(_client, self.watch),
            **self.reached.security.client_settings(),
        }


@contextmanager
def connected(
    addresses: Sequence[tuple[str, int]],
    security: ClientSecurity = OPEN,
    *,
    watch: Watch | None = None,
    timeout_s: float | None = None,
    read_timeout_s: float | None = None,
) -> Iterator[Cluster]:
    """Yield the cluster at these addresses, connected by `security`. Raises ControlError for any error.
    `watch` is as in Cluster; `timeout_s` is its deadline. `read_timeout_s` is how long one broker has to list
    or describe; None: as long as for a change.
    """
    watch = watch or Watch()
    deadline = Deadline(timeout_s)
    places = [BrokerAddress(*address, security, timeout_s) for address in addresses]
    reached, versions, connection = _reached(places, watch, deadline)
    names = tuple(shown_address(*address) for address in addresses)
    deadline.answered()
    cluster = Cluster(names, reached, versions, connection, watch, deadline, read_timeout_s)
    try:
        yield cluster
    except Exception as error:
        told = _told(reached, error, watch.trouble)
        if told is None:
            raise
        raise told from error
    finally:
        cluster.close()


def _reached(
    addresses: Sequence[BrokerAddress], watch: Watch, deadline: Deadline
) -> tuple[BrokerAddress, dict[int, int], socket.socket]:
    """Return the first address that answers, the newest version of each API there, and the connection. Where
    none answers, ask those again that accept connections. Raises ControlError.
    """
    share_s = deadline.left_s(CONNECT_TIMEOUT_S * len(addresses)) / len(addresses)
    end_s = time.monotonic() + deadline.left_s(BOOTSTRAP_TIMEOUT_S)
    unanswered: list[tuple[BrokerAddress, Unanswered]] = []

    def greeted(address: BrokerAddress) -> tuple[BrokerAddress, dict[int, int], socket.socket]:
        try:
            with watch.asking(address.shown):
                return address, *greet(address, share_s)
        except Unanswered as error:
            unanswered.append((address, error))
            raise

    while True:
        try:
            return first_that_answers(addresses, greeted)
        except (Unreachable, HungUp):
            if not unanswered:
                raise
        last, error = unanswered[-1]
        if time.monotonic() >= end_s:
            raise _unanswered(last, error, watch.trouble, deadline) from error
        unanswered.clear()
        time.sleep(RECONNECT_S)


def _unanswered(
    address: BrokerAddress, error: Unanswered, trouble: str | None, deadline: Deadline
) -> ControlError:
    """Return the error for an address that accepts connections; `trouble` is what was wrong last."""
    if error.is_late and (gave_up := _gave_up(deadline, address)) is not None:
        return gave_up
    if trouble is not None:
        return Unreachable(f"gave up: {trouble}")
    return ControlError(
        f"{address.shown} accepts connections, but does not answer over the Kafka protocol: "
        f"{error}{_ADVICE[address.security is OPEN]}"
    )


def _gave_up(deadline: Deadline, address: BrokerAddress) -> Unreachable | None:
    """Return the error of a command whose time is over; None while it has time left."""
    if not deadline.is_over:
        return None
    return Unreachable(f"gave up after {deadline.limit_s:g} s: {address.shown} does not answer")


def _not_at(reached: BrokerAddress, reason: str) -> Unreachable:
    """Return the error for a broker that is not where it says that clients find it."""
    return Unreachable(
        f"{reached.shown} answers, but the address that it advertises to clients can't be reached: "
        f"{reason}; check advertised.listeners of the cluster"
    )


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
        return _not_at(reached, sentence(error))
    if isinstance(error, errors.KafkaTimeoutError | errors.RequestTimedOutError):
        return Unreachable(sentence(error))
    return ControlError(sentence(error)) if isinstance(error, errors.KafkaError) else None


def first_that_answers(addresses: Iterable[BrokerAddress], ask: Callable[[BrokerAddress], R]) -> R:
    """Return what `ask` returns for the first address that answers. Raises ControlError when none does: where
    one hung up its own, because it tells the most.
    """
    reasons = []
    hung_up: HungUp | None = None
    for address in addresses:
        try:
            return ask(address)
        except HungUp as error:
            hung_up = error
        except OSError as error:
            reasons.append(f"{address.shown} ({reason_of(error)})")
    raise hung_up or Unreachable(
        f"nothing answers at {', '.join(reasons)}; start a gateway there, or name another address with "
        "--bootstrap"
    )


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


def _client(watch: Watch, **given: Any) -> Any:
    """Return the network client of kafka-python, which tries again by itself and tells nobody; `watch` learns
    of each request, lost connection and refusal.
    """
    from kafka import errors  # noqa: PLC0415
    from kafka.net.compat import KafkaNetClient  # noqa: PLC0415
    from kafka.net.manager import KafkaConnectionManager  # noqa: PLC0415
    from kafka.net.selector import NetworkSelector  # noqa: PLC0415

    watched: WeakSet[Any] = WeakSet()

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
            future = super().send(request, node_id, request_timeout_ms)
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


class Refused(ControlError):
    """A broker answered with an error; `code` is its number."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code


class _Silent(NamedTuple):
    """Stands for the answer about each part of a change that one broker has not answered."""

    error_message: str
    error_code: int = ErrorCode.network_exception


def check(answer: Any, what: str = "", end: str = "") -> None:
    """Raise Refused if an answer, or a part, has an error code. `what` begins the sentence, `end` ends it."""
    code = getattr(answer, "error_code", 0)
    refused = refusal(code, getattr(answer, "error_message", None))
    if refused is not None:
        raise Refused(f"{what}{refused}{end}", code)


def sentence(error: Exception) -> str:
    """Return a sentence for an exception of kafka-python."""
    from kafka import errors  # noqa: PLC0415

    code = getattr(error, "errno", None)
    if isinstance(error, errors.TopicAuthorizationFailedError):
        given = error.args[0] if error.args else None
        # kafka-python gives the topics as a set, or not at all
        return lacks_right(list(map(str, given)) if isinstance(given, set | frozenset | list | tuple) else [])
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


def lacks_right(topics: Sequence[str]) -> str:
    """Return the sentence for a user without a right on topics, which may not be known."""
    named = f"topic {', '.join(sorted(topics))}" if topics else "the topic"
    return f"this user lacks a right on {named} (TOPIC_AUTHORIZATION_FAILED); seqgate acls add gives rights"


def is_led(row: Any) -> bool:
    """Return whether a partition of the metadata has a leader."""
    return bool(row.error_code == 0 and row.leader_id >= 0)


def by_name(answer: Any, asked: Sequence[str]) -> dict[str, Any]:
    """Return the rows of a coordinator's answer by the names that were asked for; an answer about one name is
    a row itself.
    """
    for rows, name in _NAMED:
        if hasattr(answer, rows):
            return {str(getattr(row, name)): row for row in getattr(answer, rows)}
    return dict.fromkeys(asked, answer)


class NoTopic(ControlError):
    """There is no such topic."""

    def __init__(self, sentence: str, topic: str) -> None:
        super().__init__(sentence)
        self.topic = topic


def no_topic(topic: str, names: Iterable[str], *, may_be_hidden: bool = False) -> NoTopic:
    """Return the error for a missing, perhaps hidden topic, with the name of the most similar topic."""
    hidden = ", or this user may not see it" if may_be_hidden else ""
    return NoTopic(f"there is no topic {topic}{hidden}{nearest_hint(topic, names)}", topic)
