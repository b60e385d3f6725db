"""A client of kafka-python that can't be made leaves nothing behind."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from seqgate.gateway.admin.remote import cluster as cluster_module
from seqgate.gateway.admin.remote.addresses import parse_addresses
from seqgate.gateway.admin.remote.broker import BrokerAddress, HungUp, Unanswered
from seqgate.gateway.admin.remote.cluster import connected, opened
from seqgate.gateway.admin.request import ControlError, Unreachable
from seqgate.gateway.testing import Broker

TIMEOUT_S = 120.0


class Speechless(socketserver.BaseRequestHandler):
    """Reads what comes, answers nothing, and notes when the client has gone."""

    request: socket.socket
    present = 0
    changed = threading.Condition()

    def handle(self) -> None:
        with self.changed:
            Speechless.present += 1
        try:
            while self.request.recv(1 << 16):
                pass
        except OSError:
            pass
        finally:
            with self.changed:
                Speechless.present -= 1
                self.changed.notify_all()


@pytest.fixture(scope="module")
def speechless() -> Iterator[str]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Speechless) as server:
        server.daemon_threads = True
        running = threading.Thread(target=server.serve_forever, args=(0.01,))
        running.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        running.join()


@pytest.mark.parametrize("kind", [KafkaConsumer, KafkaProducer])
def test_a_client_that_gets_no_answer_leaves_no_thread_and_no_connection(
    speechless: str, kind: Callable[..., Any]
) -> None:
    threads = set(threading.enumerate())
    with pytest.raises(KafkaError):
        opened(kind, bootstrap_servers=[speechless], bootstrap_timeout_ms=200)
    left = {thread.name for thread in set(threading.enumerate()) - threads}
    assert not any(name.startswith("kafka") for name in left), left
    with Speechless.changed:
        assert Speechless.changed.wait_for(lambda: Speechless.present == 0, TIMEOUT_S)


def test_a_cluster_that_never_answers_has_no_second_time(speechless: str) -> None:
    host, port = speechless.split(":")
    told = f"gave up after 0.5 s: {speechless} does not answer"
    with pytest.raises(Unreachable, match=told), connected([(host, int(port))], timeout_s=0.5):
        pass


def test_an_address_that_hangs_up_is_passed_over_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a balancer without a live broker behind it does."""
    here, there = socket.socketpair()
    outcomes: list[tuple[str, Any]] = []

    def greet(address: BrokerAddress, _: float) -> Any:
        host, outcome = outcomes.pop(0)
        assert host == address.host
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(cluster_module, "greet", greet)
    monkeypatch.setattr(cluster_module, "RECONNECT_S", 0)
    hung_up, refused, well = Unanswered("closed", is_late=False), ConnectionRefusedError("no"), ({}, here)
    amid_login = HungUp("a:1 hung up during the login of alice")
    addresses = parse_addresses("a:1,b:2")
    for planned, reached in (
        ([("a", hung_up), ("b", well)], "b"),
        ([("a", amid_login), ("b", well)], "b"),
        ([("a", amid_login), ("b", hung_up), ("a", refused), ("b", well)], "b"),
        ([("a", hung_up), ("b", refused), ("a", well)], "a"),
    ):
        outcomes += planned
        with connected(addresses) as cluster:
            assert cluster.reached.host == reached
    outcomes += [("a", hung_up), ("b", refused)]
    monkeypatch.setattr(cluster_module, "BOOTSTRAP_TIMEOUT_S", 0)
    with pytest.raises(ControlError, match=r"^a:1 accepts connections, but does not"), connected(addresses):
        pass
    outcomes += [("a", amid_login), ("b", refused)]
    with pytest.raises(HungUp, match="alice"), connected(addresses):
        pass
    there.close()


def test_a_client_that_gets_answers_works() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        consumer = opened(KafkaConsumer, bootstrap_servers=[broker.bootstrap])
        try:
            assert consumer.topics() == {"t"}
        finally:
            consumer.close()


def test_a_codec_without_its_library_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KafkaProducer._COMPRESSORS, "zstd", (lambda: False, 4))
    told = r"Libraries for zstd compression codec not found; run: pip install 'seqgate\[codecs\]'"
    with Broker() as broker, pytest.raises(ControlError, match=told):
        opened(KafkaProducer, bootstrap_servers=[broker.bootstrap], compression_type="zstd")
