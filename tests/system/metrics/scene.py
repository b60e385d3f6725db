"""Scrapes and clients for gateways in processes of their own."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from tests.support.batches import Batch, Record, records
from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.metrics_text import Values, values_of
from tests.support.wire import Plain, Wire

DEADLINE_S = 60.0
LISTENER = "seqgate.metrics.listener"
QUICK = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "log.retention.check.interval.ms": "100",
    "log.cleaner.backoff.ms": "100",
}


def measured(data_dir: Path, **settings: str) -> GatewayProcess:
    """Return a gateway with a metrics listener; it was not started yet."""
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return GatewayProcess(data_dir, settings={**QUICK, LISTENER: f"127.0.0.1:{free_port()}", **named})


def port_of(gateway: GatewayProcess) -> int:
    return int(gateway.settings[LISTENER].rpartition(":")[2])


def page(port: int, path: str, accept: str = "*/*") -> tuple[int, str]:
    """Return status and text of a page."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def scraped(port: int, accept: str = "*/*") -> Values:
    status, text = page(port, "/metrics", accept)
    assert status == 200, text
    return values_of(text)


def await_values(port: int, condition: Callable[[Values], bool], what: str) -> Values:
    """Scrape until the values are as expected."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition(values := scraped(port)):
        assert time.monotonic() < deadline_s, f"{what}: {values}"
        time.sleep(0.05)
    return values


def create(wire: Wire, name: str, partitions: int = 1, **configs: str) -> None:
    rows = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": rows}
    (created,) = wire.call("create_topics", 7, topics=[topic], timeout=10_000).fields["topics"]
    assert created["error_code"] == 0, created


def produce(wire: Wire, topic: str, batch: Batch | None = None, transactional_id: str | None = None) -> Plain:
    """Produce one batch to partition 0; return the row of the answer."""
    data = (batch or Batch(records(1))).encode()
    rows = [{"name": topic, "partition_data": [{"index": 0, "records": data}]}]
    answer = wire.call(
        "produce", 9, acks=-1, timeout=10_000, topic_data=rows, transactional_id=transactional_id
    ).fields
    row: Plain = answer["responses"][0]["partition_responses"][0]
    return row


def fetch(wire: Wire, topic: str) -> int:
    """Fetch partition 0 from the beginning; return the bytes of its records."""
    place = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 24}
    topics = [{"topic": topic, "partitions": [place]}]
    answer = wire.call(
        "fetch",
        11,
        replica_id=-1,
        max_wait=1000,
        min_bytes=1,
        max_bytes=1 << 24,
        session_epoch=-1,
        topics=topics,
    ).fields
    return len(answer["responses"][0]["partitions"][0]["records"] or b"")


def commit(wire: Wire, group: str, topic: str, offset: int) -> None:
    place = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1}
    fields: Plain = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": topic, "partitions": [place]}],
    }
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        topics = wire.call("offset_commit", 8, fields).fields["topics"]
        error = topics[0]["partitions"][0]["error_code"]
        if error not in (14, 15, 16):
            assert error == 0
            return
        assert time.monotonic() < deadline_s
        wire.call("find_coordinator", 3, key=group, key_type=0)


def leave_a_transaction_open(
    wire: Wire, transactional_id: str, topic: str, timeout_ms: int = 600_000, *, has_record: bool = True
) -> int:
    """Begin a transaction, with one record unless its end may come first; return its producer id."""
    deadline_s = time.monotonic() + DEADLINE_S
    wire.call("find_coordinator", 3, key=transactional_id, key_type=1)
    while True:
        found = wire.call(
            "init_producer_id",
            4,
            transactional_id=transactional_id,
            transaction_timeout=timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
        ).fields
        if not found["error_code"]:
            break
        assert time.monotonic() < deadline_s, found
        wire.call("find_coordinator", 3, key=transactional_id, key_type=1)
    producer: Plain = {"producer_id": found["producer_id"], "producer_epoch": found["producer_epoch"]}
    added = wire.call(
        "add_partitions_to_txn",
        3,
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=found["producer_id"],
        v3_and_below_producer_epoch=found["producer_epoch"],
        v3_and_below_topics=[{"name": topic, "partitions": [0]}],
    ).fields
    assert not added["results_by_topic_v3_and_below"][0]["results_by_partition"][0]["partition_error_code"]
    if has_record:
        batch = Batch(records(1), attributes=0x10).of(found["producer_id"], found["producer_epoch"], 0)
        answer = produce(wire, topic, batch, transactional_id)
        assert answer["error_code"] == 0, answer
    return int(producer["producer_id"])


def keyed(key: bytes, size: int = 10) -> Batch:
    return Batch([Record(key=key, value=b"v" * size)])
