"""The gateway is killed when librdkafka has begun to commit offsets in a transaction.

librdkafka then asks for the group's coordinator, gets it, and may send nothing more and never return (its
issues 5456 and 5511); Apache Kafka in the place of the gateway sees the same. The gateway owes the client no
answer, and the next process with the same transactional id continues.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path

from confluent_kafka import Producer

from tests.support.cutting_proxy import CuttingProxy
from tests.support.gateway_process import REPOSITORY, GatewayProcess, free_port

PATIENCE_S = 90.0
FIND_COORDINATOR, ADD_OFFSETS_TO_TXN, TXN_OFFSET_COMMIT, END_TXN = 10, 25, 28, 26
CLIENT_ID = "cut-off"
PROGRAM = """
import sys
from confluent_kafka import Consumer, Producer, TopicPartition

shared = {"bootstrap.servers": sys.argv[1], "reconnect.backoff.max.ms": 200, "log_level": 0}
group = Consumer({**shared, "group.id": "g"}).consumer_group_metadata()
producer = Producer({**shared, "transactional.id": "cut", "client.id": "cut-off", "linger.ms": 0})
producer.init_transactions(60)
for offset in (1, 2):
    producer.begin_transaction()
    producer.produce("out", b"%d" % offset)
    producer.flush(60)
    producer.send_offsets_to_transaction([TopicPartition("out", 0, offset)], group, 60)
    producer.commit_transaction(60)
"""


def test_the_gateway_owes_no_answer_and_the_next_process_continues(tmp_path: Path) -> None:
    port = free_port()
    settings = {"advertised.listeners": f"127.0.0.1:{port}"}
    with (
        GatewayProcess(tmp_path / "data", settings=settings) as gateway,
        CuttingProxy(port, gateway.port, client_id=CLIENT_ID, cut_at=ADD_OFFSETS_TO_TXN, times=2) as proxy,
    ):
        bootstrap = f"127.0.0.1:{port}"
        client = subprocess.Popen([sys.executable, "-c", PROGRAM, bootstrap], cwd=REPOSITORY)
        try:
            assert proxy.was_cut.wait(PATIENCE_S)
            gateway.restart(kill=True)
            proxy.open()
            _await_the_group_coordinator(client, proxy)
        finally:
            client.kill()
            client.wait()
        next_one = Producer({"bootstrap.servers": bootstrap, "transactional.id": "cut", "log_level": 0})
        next_one.init_transactions(PATIENCE_S)
        next_one.begin_transaction()
        next_one.produce("out", b"next")
        next_one.commit_transaction(PATIENCE_S)


def _await_the_group_coordinator(client: subprocess.Popen[bytes], proxy: CuttingProxy) -> None:
    """Wait until the client is done, or until it knows the group's coordinator and nothing is unanswered."""
    deadline_s = time.monotonic() + PATIENCE_S
    while _runs(client):
        assert time.monotonic() < deadline_s, f"answered {proxy.answered}, unanswered {proxy.unanswered}"
        after = proxy.answered[proxy.answered.index(ADD_OFFSETS_TO_TXN) :] if _has_added(proxy) else []
        if FIND_COORDINATOR in after and not proxy.unanswered:
            return
    assert client.returncode == 0
    assert {TXN_OFFSET_COMMIT, END_TXN} <= set(proxy.answered)


def _runs(client: subprocess.Popen[bytes]) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        client.wait(0.05)
    return client.returncode is None


def _has_added(proxy: CuttingProxy) -> bool:
    return ADD_OFFSETS_TO_TXN in proxy.answered
