"""Limits of connections: of all, of a listener, of an address, and the rates of new ones."""

from __future__ import annotations

from typing import Any

from seqgate.gateway.config import load_config
from seqgate.gateway.runtime.loop.machine import split_file_handles
from seqgate.gateway.server.server import Admission, AdmissionVerdict

WELCOME = AdmissionVerdict()
LISTENERS = (
    "listeners=A://127.0.0.1:0,B://127.0.0.1:0",
    "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT",
)


class Door:
    """An admission with a clock that the test moves."""

    def __init__(self, *settings: str) -> None:
        self.now_ms = 1_000_000
        self.config = load_config(overrides=[*LISTENERS, *settings])
        self.admission = Admission(self.config, lambda: self.now_ms, None, 10_000)

    def admit(self, listener_name: str = "A", host: str = "192.0.2.1") -> AdmissionVerdict:
        return self.admission.admit(listener_name, host)


def test_a_listener_has_a_limit_of_its_own() -> None:
    door = Door("listener.name.a.max.connections=2", "max.connections=3")
    assert [door.admit("A"), door.admit("A")] == [WELCOME, WELCOME]
    assert door.admit("A").refusal == "listener.name.a.max.connections is 2"
    door.admission.dismiss("A", "192.0.2.1")
    assert door.admit("B") == WELCOME
    assert door.admit("B").refusal == "max.connections is 3"


def test_clients_do_not_shut_out_the_other_gateways() -> None:
    limits = ("max.connections=1", "max.connection.creation.rate=1", "listener.name.b.max.connections=2")
    door = Door(*limits, "inter.broker.listener.name=b")
    assert [door.admit("B"), door.admit("B")] == [WELCOME, WELCOME]
    assert door.admit("B").refusal == "listener.name.b.max.connections is 2"
    assert door.admit("A").refusal == "max.connections is 1"
    for _ in range(20):
        door.admit("A")
    door.admission.dismiss("B", "192.0.2.1")
    door.admission.dismiss("B", "192.0.2.1")
    assert door.admit("B") == WELCOME
    alone = Door("listeners=B://127.0.0.1:0", *limits, "inter.broker.listener.name=b")
    assert [alone.admit("B"), alone.admit("B").refusal] == [WELCOME, "max.connections is 1"]


def test_a_connection_that_is_refused_late_has_a_file_handle() -> None:
    class Quotas:
        limits_connections = True

        def delay_of_connection(self, host: str) -> int:
            return 500 if host == "192.0.2.1" else 0

    handles = 1000
    connections = split_file_handles(handles, 4096).connections
    quotas: Any = Quotas()
    admission = Admission(load_config(), lambda: 0, quotas, handles)
    assert {admission.admit("A", "192.0.2.1").close_after_ms for _ in range(connections)} == {500}
    assert "ulimit" in admission.admit("A", "192.0.2.2").refusal
    admission.dismiss("A", "192.0.2.2")
    admission.dismiss_delayed()
    assert admission.admit("A", "192.0.2.2") == WELCOME


def test_an_altered_limit_counts_for_the_next_connection() -> None:
    door = Door()
    assert door.admit() == WELCOME
    door.config.set_dynamic({"listener.name.a.max.connections": "1"}, all_brokers=False)
    assert door.admit().refusal == "listener.name.a.max.connections is 1"
    assert door.admit("B") == WELCOME


def test_without_a_rate_nothing_is_measured() -> None:
    door = Door()
    assert [door.admit() for _ in range(1000)] == [WELCOME] * 1000


def test_beyond_the_rate_of_all_the_listener_waits_and_refuses_nobody() -> None:
    door = Door("max.connection.creation.rate=2", "quota.window.num=2")
    assert [door.admit().hold_ms for _ in range(2)] == [0, 0]
    door.now_ms += 500
    assert [door.admit() for _ in range(2)] == [WELCOME, AdmissionVerdict(hold_ms=500)]
    assert door.admit("B") == AdmissionVerdict(hold_ms=1000)
    door.now_ms += 10_000
    assert door.admit() == WELCOME


def test_no_wait_is_longer_than_a_window() -> None:
    door = Door("listener.name.a.max.connection.creation.rate=1")
    holds = [door.admit().hold_ms for _ in range(100)]
    assert holds[:10] == [0] * 10
    assert set(holds[10:]) == {1000}
    assert door.admit("B") == WELCOME


def test_the_longer_of_two_waits_counts() -> None:
    door = Door("listener.name.a.max.connection.creation.rate=1", "max.connection.creation.rate=100")
    assert [door.admit().hold_ms for _ in range(11)][-1] == 1000
    door = Door("listener.name.a.max.connection.creation.rate=100", "max.connection.creation.rate=1")
    assert [door.admit().hold_ms for _ in range(11)][-1] == 1000


def test_a_rate_can_be_altered() -> None:
    door = Door("max.connection.creation.rate=1")
    assert [door.admit().hold_ms for _ in range(11)][-1] == 1000
    door.config.set_dynamic({"max.connection.creation.rate": "1000"}, all_brokers=True)
    assert door.admit() == WELCOME
