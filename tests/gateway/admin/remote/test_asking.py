"""Topics, offsets, configurations, groups, producers and transactions are the same, whether a broker serves
the newest versions or those of years ago; and what is done where a broker gives no answer, or refuses for now.
"""

from __future__ import annotations

import dataclasses
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import kafka
import msgspec
import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata
from kio.schema.api_versions.v3.response import ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from seqgate.gateway.admin import configs, producers, users
from seqgate.gateway.admin.cluster.gateways import GatewaysRequest, gateways_remote
from seqgate.gateway.admin.groups import describing, members
from seqgate.gateway.admin.groups.deletion import ClusterDeletion
from seqgate.gateway.admin.groups.describing import Committed
from seqgate.gateway.admin.groups.listing import ListGroupsRequest
from seqgate.gateway.admin.groups.reset import ClusterReset, OffsetChange
from seqgate.gateway.admin.producers import ListProducersRequest
from seqgate.gateway.admin.remote import broker as broker_module
from seqgate.gateway.admin.remote import cluster as cluster_module
from seqgate.gateway.admin.remote.addresses import parse_addresses
from seqgate.gateway.admin.remote.broker import BrokerAddress
from seqgate.gateway.admin.remote.client_security import ClientSecurity
from seqgate.gateway.admin.remote.cluster import EARLIEST, LATEST, Cluster, connected, finished
from seqgate.gateway.admin.remote.operations import RemoteClient
from seqgate.gateway.admin.remote.waiting import Deadline, Watch
from seqgate.gateway.admin.request import ControlError, Unreachable
from seqgate.gateway.admin.status import cluster_status
from seqgate.gateway.admin.topics import WOULD_BE_CREATED, create_topics, describe_topics, find_topics
from seqgate.gateway.admin.transactions import list_and_describe as transactions
from seqgate.gateway.admin.transactions.hanging import AbortHangingRequest, ClusterEnding, FindHangingRequest
from seqgate.gateway.admin.transactions.list_and_describe import ListTransactionsRequest, TransactionRow
from seqgate.gateway.metadata.image import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from seqgate.gateway.security.sasl.scram_credential import ScramHash
from seqgate.gateway.testing import Broker
from tests.support.group_members import know_topic

NO_TIME = i32Timedelta.parse(timedelta())
LIST_OFFSETS, METADATA, OFFSET_COMMIT, CREATE_TOPICS, DELETE_GROUPS, ALTER_USERS = 2, 3, 8, 19, 42, 51


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("orders", 3, {"retention.ms": "3600000"})
        running.create_topic("none")
        producer = KafkaProducer(bootstrap_servers=running.bootstrap)
        for partition in (0, 0, 2):
            producer.send("orders", b"x", partition=partition, timestamp_ms=5_000).get(60)
        producer.close()
        open_one = KafkaProducer(bootstrap_servers=running.bootstrap, transactional_id="open")
        open_one.init_transactions()
        open_one.begin_transaction()
        open_one.send("orders", b"x", partition=1).get(60)
        idle = KafkaProducer(bootstrap_servers=running.bootstrap, transactional_id="idle")
        idle.init_transactions()
        consumer = KafkaConsumer("orders", bootstrap_servers=running.bootstrap, group_id="readers")
        know_topic(consumer, "orders")
        while not consumer.assignment():
            consumer.poll(100)
        place = kafka.TopicPartition("orders", 0)
        consumer.commit({place: OffsetAndMetadata(1, "here", -1)})
        yield running
        for client in (consumer, idle, open_one):
            client.close()


def asked(cluster: Cluster) -> list[Any]:
    places = [("orders", 0), ("orders", 1), ("orders", 2), ("none", 0)]
    return [
        find_topics(cluster, internal=True),
        describe_topics(cluster, ["orders", "none"]),
        cluster.leaders(),
        cluster.broker_ids(),
        gateways_remote(cluster, GatewaysRequest()).gateways,
        [directory.used_bytes for row in cluster_status(cluster).brokers for directory in row.log_dirs],
        *(cluster.offsets(places, at) for at in (EARLIEST, LATEST, 4_000, 6_000)),
        cluster.offsets(places, LATEST, "read_committed"),
        configs.described(cluster, "topic", ["none", "orders"]),
        configs.described(cluster, "broker", ["1"]),
        configs.described(cluster, "group", ["g"]),
        configs.described(cluster, "topic", ["missing"]),
        describing.listed(cluster).keys(),
        describing.committed_offsets(cluster, ["readers", "nobody"]),
        members.members_of(cluster, "readers", "classic"),
        producers.list_producers_remote(cluster, ListProducersRequest()),
        [
            told(row)
            for row in transactions.list_transactions_remote(cluster, ListTransactionsRequest()).transactions
        ],
        transactions.list_transactions_remote(cluster, ListTransactionsRequest(states=["prepare-commit"])),
        [told(row) for row in transactions.rows_of(cluster, ["idle", "gone", "open"])],
    ]


def told(row: TransactionRow) -> TransactionRow:
    """Return a row of a transaction without what changes meanwhile."""
    return msgspec.structs.replace(row, age_ms=None)


OLD: dict[int, int] = {2: 6, 3: 11, 8: 8, 9: 7, 10: 3, 15: 5, 16: 4, 32: 4, 35: 2, 60: 0, 61: 0, 65: 0, 66: 0}
"""The newest version of each API that Kafka 2.8 serves, and 3.0 of those about transactions."""


def old_exchange(
    exchange: Callable[..., Any], connection: socket.socket, request: Any, *limit_s: float
) -> Any:
    """Hang up on a newer request, as brokers do."""
    if request.__version__ > OLD.get(request.__api_key__, 3):
        raise ConnectionResetError("the connection was closed")
    return exchange(connection, request, *limit_s)


def test_older_brokers_give_the_same(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = parse_addresses(broker.bootstrap)
    with connected(addresses) as cluster, connected(addresses) as older:
        older._versions = OLD
        answers = asked(cluster)
        monkeypatch.setattr(broker_module, "exchange", partial(old_exchange, broker_module.exchange))
        assert answers == asked(older)
    assert answers[6] == {("orders", 0): 0, ("orders", 1): 0, ("orders", 2): 0, ("none", 0): 0}
    assert answers[7] == {("orders", 0): 2, ("orders", 1): 1, ("orders", 2): 1, ("none", 0): 0}
    committed, told_members, page, rows, *_ = answers[-6:]
    assert committed == {"readers": {("orders", 0): Committed(1, "here")}, "nobody": {}}
    assert told_members.members[0].assignment == {"orders": [0, 1, 2]}
    assert [row.partition for row in page.producers if row.current_txn_start_offset >= 0] == [1]
    assert [row.transactional_id for row in rows] == ["idle", "open"]


def test_a_transaction_that_ended_while_its_coordinator_was_asked_does_not_hang(broker: Broker) -> None:
    with connected(parse_addresses(broker.bootstrap)) as cluster:
        source = ClusterEnding(cluster)
        (producer,) = source.opened([("orders", 1)])
        ended = producer._replace(first_offset=99)
        assert source.still_open([producer, ended]) == [producer]
        assert source.still_open([]) == []


def test_nobody_is_unknown_while_the_coordinator_is_offline(broker: Broker) -> None:
    with (
        connected(parse_addresses(broker.bootstrap)) as cluster,
        broker.faults.partition_offline(TRANSACTION_STATE_TOPIC),
    ):
        client = RemoteClient(cluster)
        page = client.ask(FindHangingRequest("orders"))
        assert (page.hanging, page.offline_partitions) == ([], [0])
        with pytest.raises(ControlError, match="may have a live transaction: 0 of __transaction_state"):
            client.ask(AbortHangingRequest("orders", 1, 0, execute=True))


def test_lists_name_the_coordinators_that_are_offline(broker: Broker) -> None:
    with connected(parse_addresses(broker.bootstrap)) as cluster:
        client = RemoteClient(cluster)
        for topic, question in (
            (TRANSACTION_STATE_TOPIC, ListTransactionsRequest()),
            (OFFSETS_TOPIC, ListGroupsRequest()),
        ):
            assert client.ask(question).offline_partitions == []
            with broker.faults.partition_offline(topic):
                assert client.ask(question).offline_partitions == [0]


def test_a_large_answer_is_the_same(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    with connected(parse_addresses(broker.bootstrap)) as cluster:
        small = asked(cluster)
        monkeypatch.setattr(broker_module, "_LARGE_ANSWER_BYTES", 0)
        assert asked(cluster) == small


def test_offsets_are_not_known_where_a_leader_does_not_answer(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unanswered(*_: Any, **__: Any) -> None:
        raise Unreachable("the broker did not answer")

    with connected(parse_addresses(broker.bootstrap)) as cluster:
        assert describe_topics(cluster, ["orders"])[0].offsets == 4
        monkeypatch.setattr(cluster, "offsets", unanswered)
        assert describe_topics(cluster, ["orders"])[0].offsets is None


def test_a_version_that_brokers_do_not_serve_is_named(broker: Broker) -> None:
    with connected(parse_addresses(broker.bootstrap)) as cluster:
        cluster._versions = OLD
        told = "the cluster does not serve what this command needs: ListTransactions version 2"
        with pytest.raises(ControlError, match=told):
            RemoteClient(cluster).ask(ListTransactionsRequest(pattern="o.*"))
        del cluster._versions[61]
        with pytest.raises(ControlError, match="DescribeProducers version 0"):
            RemoteClient(cluster).ask(ListProducersRequest())


def test_a_pattern_that_brokers_refuse_is_named(broker: Broker) -> None:
    told = r"^tx\( is not a regular expression \(RE2\)$"
    with connected(parse_addresses(broker.bootstrap)) as cluster, pytest.raises(ControlError, match=told):
        RemoteClient(cluster).ask(ListTransactionsRequest(pattern="tx("))


def test_questions_changes_and_brokers_have_the_whole_time_of_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(
        ("a:1",), BrokerAddress("a", 1), {CREATE_TOPICS: 7}, deadline=Deadline(100, lambda: 0.0)
    )
    waits: list[float] = []
    monkeypatch.setattr(
        cluster._connections, "ask", lambda _address, _request, limit_s, **_: waits.append(limit_s)
    )
    request = cluster.request(CREATE_TOPICS, 7, topics=[], validate_only=False)
    for is_change in (False, True):
        cluster.ask(cluster.reached, request, is_change=is_change)
    assert (waits, request.timeout) == ([100, 100], timedelta(seconds=100))


def test_the_time_of_a_command_does_not_run_while_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    deadline = Deadline(5, lambda: now_s)
    cluster = Cluster(("a:1",), BrokerAddress("a", 1), deadline=deadline)

    def unanswered(*_: Any, **__: Any) -> None:
        assert deadline.left_s(1) == 1
        raise Unreachable("the broker did not answer")

    assert cluster.spans([]) == {}
    now_s = 6.0  # the person reads the question of the command
    monkeypatch.setattr(cluster, "offsets", unanswered)
    assert cluster.spans([("orders", 0)]) == {}
    now_s = 12.0
    assert deadline.left_s(30) == 5


def test_a_lost_connection_is_opened_again_but_no_change_is_sent_twice(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(parse_addresses(broker.bootstrap)) as cluster:
        for connection in cluster._connections._open.values():
            connection.shutdown(socket.SHUT_RDWR)
        assert cluster.offsets([("orders", 0)], LATEST) == {("orders", 0): 2}
        sent = []

        def lost(_: socket.socket, request: Any, *_limit_s: float) -> None:
            sent.append(request)
            raise ConnectionResetError("the connection was closed")

        monkeypatch.setattr(broker_module, "exchange", lost)
        with pytest.raises(Unreachable, match="did not answer: the connection was closed"):
            cluster.ask(cluster.reached, cluster.request(16, 5), is_change=True)
        assert len(sent) == 1


def alter_answers(monkeypatch: pytest.MonkeyPatch, alter: Callable[[int, Any], Any]) -> None:
    """Let `alter` change the brokers' answers, by the key of the API; commands ask again at once."""
    asks = broker_module.exchange

    def exchange(connection: socket.socket, request: Any, *limit_s: float) -> Any:
        return alter(request.__api_key__, asks(connection, request, *limit_s))

    monkeypatch.setattr(broker_module, "exchange", exchange)
    monkeypatch.setattr(cluster_module, "PAUSE_S", 0.01)


def with_code(rows: Sequence[Any], code: ErrorCode) -> tuple[Any]:
    """Return the only row of an answer with an error code."""
    (row,) = rows
    return (dataclasses.replace(row, error_code=code),)


def with_code_of_partition(answer: Any, code: ErrorCode) -> Any:
    """Return an answer about one partition with an error code."""
    (topic,) = answer.topics
    topic = dataclasses.replace(topic, partitions=with_code(topic.partitions, code))
    return dataclasses.replace(answer, topics=(topic,))


def test_what_a_broker_refuses_for_now_is_asked_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    codes = [ErrorCode.not_leader_or_follower, ErrorCode.offset_not_available, ErrorCode.none]

    def alter(api_key: int, answer: Any) -> Any:
        return answer if api_key != LIST_OFFSETS else with_code_of_partition(answer, codes.pop(0))

    alter_answers(monkeypatch, alter)
    now_s = iter(range(0, 1000, 2))
    watch = Watch(said.append, lambda: next(now_s))
    with connected(parse_addresses(broker.bootstrap), watch=watch) as cluster:
        monkeypatch.setattr(cluster_module.time, "sleep", lambda _: watch.look())
        assert cluster.offsets([("orders", 0)], LATEST) == {("orders", 0): 2}
        assert not codes
        assert said[0].startswith("the cluster refuses: ")
        assert said[0].endswith("(NOT_LEADER_OR_FOLLOWER); still trying")
        assert said[1:] == ["the cluster works again"]
        codes += [ErrorCode.not_leader_or_follower] * 1_000
        with pytest.raises(ControlError, match=r"orders-0: .* \(NOT_LEADER_OR_FOLLOWER\)"):
            cluster.offsets([("orders", 0)], LATEST, patience_s=0.01)


def test_a_change_is_sent_to_the_next_controller(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = [ErrorCode.not_controller, ErrorCode.none]

    def alter(api_key: int, answer: Any) -> Any:
        if api_key != CREATE_TOPICS:
            return answer
        return dataclasses.replace(answer, topics=with_code(answer.topics, codes.pop(0)))

    alter_answers(monkeypatch, alter)
    with connected(parse_addresses(broker.bootstrap)) as cluster:
        (created,) = create_topics(cluster, ["fresh"], validate_only=True)
        assert (created.outcome, created.partitions, codes) == (WOULD_BE_CREATED, 1, [])


def test_groups_are_changed_by_their_next_coordinator(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes: list[ErrorCode] = []

    def alter(api_key: int, answer: Any) -> Any:
        if api_key == DELETE_GROUPS:
            return dataclasses.replace(answer, results=with_code(answer.results, codes.pop()))
        return with_code_of_partition(answer, codes.pop()) if api_key == OFFSET_COMMIT else answer

    alter_answers(monkeypatch, alter)
    with connected(parse_addresses(broker.bootstrap)) as cluster:
        codes += [ErrorCode.none, ErrorCode.not_coordinator]
        finished(ClusterReset(cluster).commit("moved", [OffsetChange("orders", 0, None, 1, 0, 2, None)]))
        assert describing.committed_offsets(cluster, ["moved"])["moved"]["orders", 0].offset == 1
        codes += [ErrorCode.none, ErrorCode.coordinator_load_in_progress]
        deleted = finished(ClusterDeletion(cluster).delete(dict.fromkeys(["moved"], Any)))
    assert (deleted, codes) == ({"moved": None}, [])


def test_what_some_brokers_have_changed_is_told_where_another_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = BrokerAddress("a", 1)
    there = here.other("b", 2)
    cluster = Cluster(("a:1",), here, {})
    cluster.__dict__["brokers"] = {1: here, 2: there}
    monkeypatch.setattr(cluster, "leaders", lambda: {("dlq", 0): 1, ("dlq", 1): 2})

    def ask(address: BrokerAddress, _: Any, **__: Any) -> Any:
        if address == there:
            raise Unreachable("the broker at b:2 did not answer")
        row = SimpleNamespace(partition_index=0, error_code=ErrorCode.none)
        return SimpleNamespace(topics=[SimpleNamespace(name="dlq", partitions=[row])], error_code=0)

    monkeypatch.setattr(cluster, "ask", ask)
    with pytest.raises(ControlError, match=r"^dlq-1: the broker at b:2 did not answer .*; done in dlq-0$"):
        cluster.ask_leaders([("dlq", 0), ("dlq", 1)], lambda _: None, is_change=True)
    found = [
        SimpleNamespace(key=name, error_code=0, host=name, port=port) for name, port in (here[:2], there[:2])
    ]
    monkeypatch.setattr(cluster, "coordinators", lambda *_: {row.key: row for row in found})
    monkeypatch.setattr(cluster, "request", lambda *_, **__: None)
    deleted = finished(ClusterDeletion(cluster).delete(dict.fromkeys(["a", "b"], Any)))
    assert deleted == {"a": None, "b": "the broker at b:2 did not answer (NETWORK_EXCEPTION)"}


def test_what_a_change_has_done_is_told_where_a_later_turn_has_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(("a:1",), BrokerAddress("a", 1), {})
    monkeypatch.setattr(cluster_module, "PAUSE_S", 0.01)
    codes = {"done": ErrorCode.none, "moves": ErrorCode.not_coordinator}
    turns = iter([{name: SimpleNamespace(error_code=code) for name, code in codes.items()}])

    def ask(_: Sequence[str]) -> dict[str, Any]:
        rows = next(turns, None)
        if rows is None:
            raise Unreachable("the broker at c:1 did not answer")
        return rows

    found = cluster._settled(list(codes), ask, is_change=True, patience_s=60)
    assert [row.error_code for row in found.values()] == [ErrorCode.none, ErrorCode.network_exception]
    with pytest.raises(Unreachable):
        cluster._settled(["moves"], ask, is_change=True, patience_s=60)


def test_the_password_of_a_user_is_changed_by_the_controller(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache Kafka with ZooKeeper refuses the change at any other broker."""
    codes = [ErrorCode.not_controller, ErrorCode.none]

    def alter(api_key: int, answer: Any) -> Any:
        if api_key != ALTER_USERS:
            return answer
        return dataclasses.replace(answer, results=with_code(answer.results, codes.pop(0)))

    alter_answers(monkeypatch, alter)
    with connected(parse_addresses(broker.bootstrap)) as cluster:
        new = users.credential_for(ScramHash.SHA_256, "pencil", 4096)
        users.add_user(cluster, users.AddUserRequest("bob", [new]))
    assert not codes


def test_what_the_first_controller_has_done_counts(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one gets the whole change again, and refuses what is done."""
    monkeypatch.setattr(cluster_module, "PAUSE_S", 0.01)
    outcomes = iter(
        [
            {0: ErrorCode.none, 1: ErrorCode.not_controller},
            {0: ErrorCode.topic_already_exists, 1: ErrorCode.none},
        ]
    )

    def ask(_: Sequence[int]) -> dict[int, Any]:
        return {number: SimpleNamespace(error_code=code) for number, code in next(outcomes).items()}

    with connected(parse_addresses(broker.bootstrap)) as cluster:
        settled = cluster._settled([0], ask, is_change=True)
    assert [row.error_code for row in settled.values()] == [ErrorCode.none, ErrorCode.none]


def test_the_answers_about_many_names_are_found_without_comparing_all_names() -> None:
    compared = []

    class Name:
        __hash__ = object.__hash__

        def __eq__(self, other: object) -> bool:
            compared.append(other)
            return self is other

    names = [Name() for _ in range(100)]
    answers = {name: SimpleNamespace(error_code=ErrorCode.none) for name in names}
    assert Cluster(("a:1",), BrokerAddress("a", 1))._settled(names, lambda _: answers) == answers
    assert len(compared) < len(names)


def test_what_all_brokers_know_is_asked_of_the_next_one(broker: Broker) -> None:
    """The address given is none that the brokers advertise, as behind a balancer."""
    with connected(parse_addresses(broker.bootstrap)) as cluster:
        here = cluster.reached
        cluster.__dict__["brokers"] = {1: here.other("127.0.0.1", 1), 2: here}
        cluster.reached = here.other("localhost", here.port)
        assert {topic.name for topic in cluster.all_topics()} >= {"orders", "none"}
        assert cluster.any_broker == here


def test_the_brokers_are_asked_for_where_the_reached_one_has_ended(broker: Broker) -> None:
    with connected(parse_addresses(broker.bootstrap)) as cluster:
        here = cluster.reached
        cluster.reached = here.other("127.0.0.1", 1)
        assert cluster.brokers == {1: here}, "asked at the other address given"
        cluster.addresses = ("127.0.0.1:1",)
        cluster.forget_brokers()
        assert cluster.brokers == {1: here}, "asked a broker that was known"


def test_no_broker_is_blamed_that_was_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    here = BrokerAddress("a", 1)
    now_s = iter([0.0, 5.0])
    cluster = Cluster(("a:1",), here, {METADATA: 12}, deadline=Deadline(5, lambda: next(now_s, 5.0)))
    cluster.__dict__["brokers"] = {1: here, 2: here.other("b", 2)}

    def unanswered(*_: Any, **__: Any) -> None:
        raise TimeoutError

    monkeypatch.setattr(cluster._connections, "ask", unanswered)
    with pytest.raises(Unreachable, match=r"^gave up after 5 s: a:1 does not answer$"):
        cluster.all_topics()


def test_a_page_does_not_wait_for_a_leader_that_is_not_there(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module.time, "sleep", lambda _: pytest.fail("it waits"))
    with connected(parse_addresses(broker.bootstrap), read_timeout_s=60) as cluster:
        assert cluster.leaders()
        monkeypatch.setattr(cluster, "forget_brokers", lambda: None)
        cluster.__dict__["brokers"] = {1: cluster.reached.other("127.0.0.1", 1)}
        with pytest.raises(Unreachable):
            cluster.offsets([("orders", 0)], LATEST)
        assert cluster.spans([("orders", 0)]) == {}


def test_a_leader_that_has_moved_is_found_again(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "PAUSE_S", 0.01)
    with connected(parse_addresses(broker.bootstrap)) as cluster:
        for wrong in ({}, {1: cluster.reached.other("127.0.0.1", 1)}):
            cluster.__dict__["brokers"] = wrong
            assert cluster.offsets([("orders", 0)], LATEST) == {("orders", 0): 2}
        cluster.__dict__["brokers"] = wrong
        assert describing.listed(cluster).keys() == {"readers"}


def test_a_partition_without_a_leader_is_named(broker: Broker) -> None:
    cluster = connected(parse_addresses(broker.bootstrap), timeout_s=1)
    with cluster as reached, pytest.raises(ControlError, match="orders-7 has no leader now"):
        reached.offsets([("orders", 7)], LATEST)


def test_an_address_that_does_not_answer_over_tls_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first address gives no answer after the handshake; the second one does."""
    silent, other = parse_addresses("127.0.0.1:1,127.0.0.1:2")
    opened, ends = [], []

    def open_connection(address: BrokerAddress, _: float) -> socket.socket:
        here, there = socket.socketpair()
        opened.append(here)
        ends.append(there)
        return here

    def exchange(connection: socket.socket, *_: Any) -> ApiVersionsResponse:
        if connection is opened[0]:
            raise TimeoutError
        return ApiVersionsResponse(error_code=ErrorCode.none, api_keys=(), throttle_time=NO_TIME)

    monkeypatch.setattr(broker_module, "open_connection", open_connection)
    monkeypatch.setattr(broker_module, "exchange", exchange)
    with connected([silent, other], ClientSecurity(context=ssl.create_default_context())) as cluster:
        assert cluster.reached[:2] == other
        assert opened[0].fileno() == -1, "the silent connection is still open"
    assert opened[1].fileno() == -1
    for end in ends:
        end.close()
