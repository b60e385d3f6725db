"""The metrics of all gateways of a cluster: whom the console asks, and what it makes of the answers."""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec
import pytest

from seqgate.gateway.admin.metrics import GatewayMetrics as OneGateway
from seqgate.gateway.admin.metrics import MetricsPage, MetricsRequest
from seqgate.gateway.admin.remote import broker
from seqgate.gateway.admin.remote.broker import BrokerAddress, open_connection
from seqgate.gateway.admin.remote.client_security import ClientSecurity
from seqgate.gateway.admin.request import ControlAnswer, ControlError, Unreachable
from seqgate.gateway.console.asking import gateways
from seqgate.gateway.console.asking.gateways import SILENT_S, BrokerMemory, GatewayAsker, Replies, Reply
from seqgate.gateway.console.metrics import listener
from seqgate.gateway.console.metrics.gateways import (
    COUNTED,
    GATEWAYS,
    PATIENCE_MS,
    GatewayFigures,
    GatewayMetrics,
)
from seqgate.gateway.console.metrics.history import DISK_FREE, TOPIC_RECORDS, Key, key_of
from seqgate.gateway.console.metrics.listener import MetricsClient
from seqgate.gateway.console.metrics.rates import CONNECTIONS, FLUSH_P99, PRODUCE_P99, RECORDS
from seqgate.gateway.protocol.kafka_4_4 import QUESTION_API
from seqgate.gateway.protocol.messages import build, encode_response, response_module
from tests.support.gateway_process import free_port
from tests.support.metrics_stub import metrics_stub

STEP_MS = 5_000


def metrics(node_id: int, records: int, *, slow: float = 0, free: int = 100) -> str:
    """Return the metrics of a gateway that has stored so many records, one request each; `slow` took a second."""
    return f"""\
seqgate_node_info{{version="1.0",node_id="{node_id}",cluster_id="c"}} 1
seqgate_topic_records_total{{topic="t"}} {records}
seqgate_connections 2
seqgate_disk_free_bytes {free}
seqgate_request_duration_seconds_bucket{{api="Produce",le="0.001"}} {records - slow}
seqgate_request_duration_seconds_bucket{{api="Produce",le="1.0"}} {records}
seqgate_request_duration_seconds_bucket{{api="Produce",le="+Inf"}} {records}
seqgate_flush_round_duration_seconds_bucket{{le="0.001"}} {records}
seqgate_flush_round_duration_seconds_bucket{{le="+Inf"}} {records}
"""


class Watched:
    """Three gateways as the console sees them every five seconds."""

    def __init__(self) -> None:
        self.figures = GatewayFigures()
        self.now_ms = 0

    def see(self, *texts: str | None) -> tuple[Any, dict[Key, float | None]]:
        """Let the console see what each gateway tells; None for one that does not answer."""
        self.now_ms += STEP_MS
        told = [
            Reply(str(number), f"h:{number}", None, "no answer")
            if text is None
            else Reply(str(number), f"h:{number}", MetricsPage([OneGateway(number, text)], [number]))
            for number, text in enumerate(texts, 1)
        ]
        return self.figures.see(self.now_ms, Replies(told, len(told)))


def texts_of(answers: Replies[MetricsPage]) -> list[tuple[str, str]]:
    """Return what each gateway told, by its name."""
    return [
        (row.name, "".join(one.text for one in row.answer.gateways)) for row in answers.rows if row.answer
    ]


def test_counts_are_summed_and_of_times_the_worst_counts() -> None:
    watched = Watched()
    watched.see(metrics(1, 100), metrics(2, 100), metrics(3, 100))
    found, sampled = watched.see(metrics(1, 150), metrics(2, 200, slow=50, free=7), metrics(3, 100, free=70))
    assert [row.values[RECORDS] for row in found.rows] == [10, 20, 0]
    assert sampled[Key(RECORDS)] == 30
    assert sampled[Key(CONNECTIONS)] == 6
    slowest = [row.values[PRODUCE_P99] for row in found.rows]
    assert slowest[2] is None, "it had no request"
    assert sampled[Key(PRODUCE_P99)] == slowest[1] == pytest.approx(980, abs=1)
    assert slowest[0] is not None
    assert slowest[0] < 1
    assert sampled[Key(FLUSH_P99)] is not None
    assert sampled[key_of(TOPIC_RECORDS, {"topic": "t"})] == 30
    assert sampled[key_of(DISK_FREE, {"broker": ""})] == 7
    assert (sampled[Key(GATEWAYS)], sampled[Key(COUNTED)], found.of, found.counted) == (3, 3, 3, 3)
    assert [(row.name, row.version) for row in found.rows] == [("1", "1.0"), ("2", "1.0"), ("3", "1.0")]
    assert found.cluster_id == "c"


def test_a_gateway_that_does_not_answer_makes_a_gap_and_no_dip() -> None:
    watched = Watched()
    watched.see(metrics(1, 0), metrics(2, 0))
    found, sampled = watched.see(metrics(1, 50), None)
    assert Key(RECORDS) not in sampled
    assert key_of(TOPIC_RECORDS, {"topic": "t"}) not in sampled
    assert sampled[Key(PRODUCE_P99)] is not None, "a time of the others is no dip"
    assert (found.rows[1].trouble, found.counted, found.of) == ("no answer", 1, 2)
    assert found.is_partial, "the next round comes soon, however long this one waited"
    records = 50
    for _ in range(PATIENCE_MS // STEP_MS):
        records += 50
        found, sampled = watched.see(metrics(1, records), None)
    assert sampled[Key(RECORDS)] == 10, "the others count after a while"
    assert (sampled[Key(GATEWAYS)], sampled[Key(COUNTED)]) == (2, 1)


def test_metrics_that_are_not_understood_cost_the_row_of_their_gateway() -> None:
    watched = Watched()
    watched.see(metrics(1, 0), metrics(2, 0))
    found, _ = watched.see(metrics(1, 50), 'seqgate_connections{listener="a} 2')
    assert found.rows[0].values[RECORDS] == 10
    assert "not understood" in str(found.rows[1].trouble)


def test_a_restart_is_neither_a_negative_nor_a_huge_rate() -> None:
    watched = Watched()
    watched.see(metrics(1, 1_000_000), metrics(2, 50))
    watched.see(metrics(1, 1_000_050), metrics(2, 100))
    watched.see(None, metrics(2, 150))
    _, sampled = watched.see(metrics(1, 100), metrics(2, 200))
    assert sampled[Key(RECORDS)] == 100 / 10 + 10, "100 since the restart, over the time without an answer"
    _, sampled = watched.see(metrics(1, 150), metrics(2, 250))
    assert sampled[Key(RECORDS)] == 20


def test_a_gateway_that_joins_counts_with_its_second_answer() -> None:
    watched = Watched()
    watched.see(metrics(1, 0))
    watched.see(metrics(1, 50))
    found, sampled = watched.see(metrics(1, 100), metrics(2, 9_000_000))
    assert Key(RECORDS) not in sampled
    assert (found.rows[1].values, found.rows[1].trouble) == ({}, None)
    _, sampled = watched.see(metrics(1, 150), metrics(2, 9_000_050))
    assert sampled[Key(RECORDS)] == 20


# Whom the console asks.


class FakeBroker(socketserver.ThreadingTCPServer):
    """Answers DescribeCluster with the brokers of its cluster, and with `told` in the field of the answer; as
    Apache Kafka without.
    """

    daemon_threads = True

    def __init__(self, node_id: int, told: ControlAnswer | bytes | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.node_id = node_id
        self.told = told
        self.brokers: dict[int, int] = {}
        """The port of each broker of the cluster."""
        self.hosts: dict[int, str] = {}
        """The hosts of brokers that are not on this machine."""
        self.connections = 0
        self.asked = 0
        self.stands_still: Callable[[], object] | None = None
        """Waits in place of an answer, which never comes."""
        """The time between two bytes of an answer that has no end; 0 for whole answers."""
        self.port = self.server_address[1]

    def answer(self) -> Any:
        module = response_module(*QUESTION_API)
        return build(
            module.DescribeClusterResponse,
            error_code=0,
            error_message=None,
            cluster_id="fake",
            controller_id=1,
            brokers=tuple(
                build(
                    module.DescribeClusterBroker,
                    broker_id=number,
                    host=self.hosts.get(number, "127.0.0.1"),
                    port=port,
                    rack=None,
                )
                for number, port in self.brokers.items()
            ),
            cluster_authorized_operations=0,
            answer=msgspec.json.encode(self.told) if isinstance(self.told, ControlAnswer) else self.told,
        )


class _Handler(socketserver.BaseRequestHandler):
    server: FakeBroker

    def handle(self) -> None:
        self.server.connections += 1
        stream = self.request.makefile("rb")
        while size := stream.read(4):
            frame = stream.read(int.from_bytes(size, "big"))
            (correlation_id,) = struct.unpack_from(">i", frame, 4)
            self.server.asked += 1
            if self.server.stands_still is not None:
                self.server.stands_still()
                return
            self.request.sendall(encode_response(QUESTION_API[0], correlation_id, self.server.answer()))


def told(node_id: int) -> ControlAnswer:
    page = MetricsPage([OneGateway(node_id, metrics(node_id, node_id))], [node_id])
    return ControlAnswer(msgspec.Raw(msgspec.json.encode(page)))


REFUSED = ControlAnswer(error="metrics over the network needs DESCRIBE on the cluster")


@contextmanager
def brokers(*answers: ControlAnswer | bytes | None) -> Iterator[list[FakeBroker]]:
    """Yield the brokers of one cluster."""
    with ExitStack() as stack:
        found = [stack.enter_context(FakeBroker(number, answer)) for number, answer in enumerate(answers, 1)]
        for broker in found:
            broker.brokers = {other.node_id: other.port for other in found}
            threading.Thread(target=broker.serve_forever, args=(0.05,), daemon=True).start()
            stack.callback(broker.shutdown)
        yield found


@contextmanager
def asking(ports: Sequence[int], *urls: str) -> Iterator[GatewayMetrics]:
    asker = GatewayMetrics(
        [("127.0.0.1", port) for port in ports], ClientSecurity(), [MetricsClient(url) for url in urls]
    )
    try:
        yield asker
    finally:
        asker.close()


def test_all_brokers_are_found_by_one_and_asked_over_one_connection_each() -> None:
    with brokers(told(1), told(2), told(3)) as found, asking([free_port(), found[1].port]) as asker:
        for _ in range(3):
            answers, note = asker.ask()
        assert texts_of(answers) == [(str(number), metrics(number, number)) for number in (1, 2, 3)]
        assert (answers.of, note, answers.cluster_id) == (3, None, "fake")
        assert [broker.connections for broker in found] == [1, 1, 1]


def test_one_that_does_not_answer_or_refuses_says_so_in_its_row() -> None:
    with brokers(told(1), REFUSED, told(3)) as found, asking([found[0].port]) as asker:
        found[0].brokers[3] = free_port()
        answers, _ = asker.ask()
        assert [each.trouble for each in answers.rows[:2]] == [None, REFUSED.error]
        assert "no answer: Connection refused" in str(answers.rows[2].trouble)
        assert not asker.ask(asks_cluster=False)[0].rows, "without a login of its own it asks nobody"


@pytest.mark.parametrize(
    "answer",
    [b"junk", b"[]", b'{"error": 5}', b'{"error": "\xff"}', b'{"result": ' + b"[" * 100_000],
    ids=["no JSON", "no object", "another type", "no text", "too deep"],
)
def test_an_answer_that_is_not_understood_costs_its_row_alone(answer: bytes) -> None:
    with brokers(answer, told(2)) as found, asking([found[1].port]) as asker:
        first, second = asker.ask()[0].rows
        assert "is not understood" in str(first.trouble)
        assert second.trouble is None


def test_a_broker_at_a_name_that_none_can_have_costs_its_row_alone() -> None:
    with brokers(told(1), told(2)) as found, asking([found[0].port]) as asker:
        found[0].hosts[2] = "a..b"
        first, second = asker.ask()[0].rows
        assert first.trouble is None
        assert "a..b" in str(second.trouble)


@pytest.mark.parametrize("answer", [None, REFUSED], ids=["Apache Kafka", "a missing right"])
def test_listeners_are_asked_where_no_broker_tells_its_metrics(answer: ControlAnswer | None) -> None:
    with (
        brokers(answer, answer) as found,
        metrics_stub() as one,
        metrics_stub() as other,
        asking([found[0].port], one.url, other.url) as asker,
        asking([found[0].port]) as without,
    ):
        one.metrics, other.metrics = metrics(1, 10), metrics(2, 20)
        answers, note = asker.ask()
        assert texts_of(answers) == [
            (one.url, metrics(1, 10).rstrip("\n")),
            (other.url, metrics(2, 20).rstrip("\n")),
        ]
        assert note == (None if answer is None else REFUSED.error)
        assert [each.trouble for each in without.ask()[0].rows] == (
            [] if answer is None else [REFUSED.error] * 2
        )


def test_while_the_cluster_is_away_each_gateway_that_was_seen_has_a_row() -> None:
    with asking([free_port()]) as asker, pytest.raises(Unreachable):
        asker.ask()
    with brokers(told(1), told(2)) as found, asking([found[0].port]) as asker:
        asker.ask()
        for broker in found:
            broker.shutdown()
            broker.server_close()
        for _ in range(2):
            asker._asker._connections._open.popitem()[1].close()
        answers, _ = asker.ask()
        assert [(each.name, each.trouble) for each in answers.rows] == [
            ("1", "the cluster does not answer"),
            ("2", "the cluster does not answer"),
        ]


# Brokers that stand still: whoever connects to them gets no answer.


def test_all_that_stand_still_cost_one_wait_and_are_asked_again_soon() -> None:
    """Each of them waits until all are asked: one after the other, none would be asked with another."""
    now_s = [0.0]
    memory = BrokerMemory(lambda: now_s[0])
    all_asked, end = threading.Barrier(3), threading.Event()

    def still() -> None:
        all_asked.wait()
        end.wait()

    with brokers(*map(told, range(1, 6))) as found, ThreadPoolExecutor() as pool:
        asker = GatewayAsker(
            [("127.0.0.1", each.port) for each in found], ClientSecurity(), pool, 3.0, memory
        )
        assert [row.trouble for row in asker.ask(MetricsRequest()).rows] == [None] * 5
        for broker in found[:3]:
            broker.stands_still = still
        expected = ["no answer in time"] * 3 + [None] * 2
        assert [row.trouble for row in asker.ask(MetricsRequest()).rows] == expected
        assert not all_asked.broken
        assert [broker.asked for broker in found] == [2] * 5
        now_s[0] += SILENT_S - 1
        assert [row.trouble for row in asker.ask(MetricsRequest()).rows] == expected
        assert [broker.asked for broker in found] == [2] * 3 + [3] * 2, "silent ones are not asked again yet"
        other = GatewayAsker([("127.0.0.1", found[0].port)], ClientSecurity(), pool, 3.0, memory)
        assert [row.trouble for row in other.ask(MetricsRequest()).rows] == expected, "another login knows"
        found[0].stands_still = None
        sampler = GatewayAsker([], ClientSecurity(), pool, 3.0, memory, asks_silent=True)
        assert [row.trouble for row in sampler.ask(MetricsRequest()).rows] == [None, *expected[1:]]
        expected[0] = None
        assert [row.trouble for row in asker.ask(MetricsRequest()).rows] == expected, "that one is back"
        for broker in found:
            broker.stands_still = None
        now_s[0] += 1
        assert [row.trouble for row in asker.ask(MetricsRequest()).rows] == [None] * 5
        end.set()
        asker.close()
        other.close()
        sampler.close()


def test_a_cluster_of_silent_brokers_is_asked_each_time() -> None:
    memory = BrokerMemory()
    with brokers(told(1)) as found, ThreadPoolExecutor() as pool:
        found[0].stands_still = threading.Event().wait
        asker = GatewayAsker([("127.0.0.1", found[0].port)], ClientSecurity(), pool, 0.2, memory)
        for _ in range(2):
            with pytest.raises(Unreachable, match="no answer in time"):
                asker.ask(MetricsRequest())
        assert found[0].asked == 2
        asker.close()


def test_a_listener_that_stands_still_costs_one_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = MetricsClient(f"http://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(ControlError, match="does not answer: timed out"):
            client.metrics()
    with pytest.raises(ControlError, match="does not answer: no answer in time"):
        client.readiness()


class Dripping:
    """A connection to a broker that sends a large answer byte by byte."""

    def __init__(self) -> None:
        self.pieces = iter([struct.pack(">i", 1 << 20)])

    def settimeout(self, _: float) -> None: ...

    def sendall(self, _: bytes) -> None: ...

    def recv(self, _: int) -> bytes:
        return next(self.pieces, b"\0")

    def close(self) -> None: ...


class Ticking(threading.local):
    """A clock that each thread has for itself, and that goes on by a second whenever it is asked."""

    now_s = 0.0

    def monotonic(self) -> float:
        self.now_s += 1
        return self.now_s


def test_an_answer_that_comes_byte_by_byte_does_not_hold_a_page_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(address: BrokerAddress, timeout_s: float) -> Any:
        return Dripping() if address.port == found[1].port else open_connection(address, timeout_s)

    monkeypatch.setattr(broker, "time", Ticking())
    monkeypatch.setattr(gateways, "open_connection", opened)
    with brokers(told(1), told(2)) as found, ThreadPoolExecutor() as pool:
        asker = GatewayAsker([("127.0.0.1", found[0].port)], ClientSecurity(), pool, 60)
        rows = asker.ask(MetricsRequest()).rows
        assert [row.trouble for row in rows] == [None, "no answer in time"]
        asker.close()
