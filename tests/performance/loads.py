"""The loads: one-record requests and fetches from `load.c`, batches from Kafka's own ProducerPerformance."""

from __future__ import annotations

import json
import math
import re
import resource
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tests.performance.brokers import TOOL_HEAP, Broker, FloorBroker, compile_program, jvm
from tests.support.batches import Batch, Record, records
from tests.support.setup_peers import PROJECT
from tests.support.wire import Plain, Wire, encode

T = TypeVar("T")
SOURCE = Path(__file__).with_name("load.c")
LOAD_TIMEOUT_S = 60.0
CREATE_TIMEOUT_S = 20.0
PAGE_CACHE = str(2**63 - 1)
EVERY_MESSAGE = "1"
CLIENT_WARM_UP = 0.3
"""The share of ProducerPerformance's records after which its JVM counts as warm."""
SESSION_MARK = 0x5A697887
FETCH_OFFSET_MARK = 0x1122334455667788
FETCH_MAX_BYTES = 1 << 20
SEQUENCE_DIGITS = 19
"""The number of digits that the load generator counts up in each value."""
PLAN_HEAD = struct.Struct("<5I")
COMMIT_ERROR_AT = 4 + 4 + 4 + 2 + 4 + 4
"""The position of the error code in an OffsetCommit v7 answer for one partition of a topic with an empty
name. Before it are the correlation id, the throttle time, the number of topics, the length of the name, the
number of partitions, and the partition."""
PARTITION_ANSWER_BYTES = 33
"""The bytes of each partition in a Produce v9 answer without an error."""
PERFORMANCE_LINE = re.compile(
    r"^(?P<records>\d+) steady state records sent, (?P<rate>[\d.]+) records/sec .*?"
    r" (?P<p99>[\d.]+) ms 99th, [\d.]+ ms 99\.9th\.$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Sample:
    """The measurements of one load on one broker; rate and p99 exclude the client's warm-up."""

    records: int
    requests: int
    records_per_s: float
    p99_ms: float
    """NaN where the load does not tell it."""
    broker_cpu_s: float
    client_cpu_s: float
    resident_bytes: int
    p50_ms: float | None = None
    """The median latency; None where the load does not tell it."""

    @property
    def records_per_cpu_s(self) -> float:
        return self.records / max(self.broker_cpu_s, 0.01)

    @property
    def broker_cpu_us(self) -> float:
        """The microseconds of the broker's CPU for each record."""
        return 1e6 / self.records_per_cpu_s


def create_topic(broker: Broker, name: str, *, partitions: int, flush_messages: str, **settings: str) -> None:
    """Create a topic with its flush policy, and wait until every partition has a leader. The floor has only the
    flush policy.

    Further configs are given as keyword arguments, with `_` for `.`.
    """
    if isinstance(broker, FloorBroker):
        broker.choose(is_flushed=flush_messages == EVERY_MESSAGE)
        return
    given = {"flush.messages": flush_messages, **{key.replace("_", "."): settings[key] for key in settings}}
    configs = [{"name": key, "value": value} for key, value in given.items()]
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": configs}
    with Wire(broker.bootstrap) as wire:
        created = wire.call("create_topics", 7, topics=[topic], timeout=10_000).fields["topics"][0]
        assert created["error_code"] == 0, created
        _until_told(lambda: _is_ready(wire, name, partitions) or None, f"topic {name} gets no leaders")


def _is_ready(wire: Wire, name: str, partitions: int) -> bool:
    asked = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
    topic = wire.call("metadata", 12, asked).fields["topics"][0]
    if len(topic["partitions"]) < partitions or any(row["error_code"] for row in topic["partitions"]):
        return False
    return all(offset >= 0 for offset in log_end_offsets(wire, name, partitions))


def choose_durability(broker: Broker, topic: str, flush_messages: str) -> None:
    """Set the flush policy of an existing topic: flush before each answer, or never."""
    configs = [{"name": "flush.messages", "config_operation": 0, "value": flush_messages}]
    resource = {"resource_type": 2, "resource_name": topic, "configs": configs}
    with Wire(broker.bootstrap) as wire:
        answer = wire.call("incremental_alter_configs", 1, resources=[resource], validate_only=False).fields
    assert answer["responses"][0]["error_code"] == 0, answer


def delete_topic(broker: Broker, name: str) -> None:
    if isinstance(broker, FloorBroker):
        broker.empty()
        return
    with Wire(broker.bootstrap) as wire:
        answer = wire.call("delete_topics", 5, topic_names=[name], timeout=10_000).fields
        assert answer["responses"][0]["error_code"] == 0, answer


def log_end_offsets(wire: Wire, name: str, partitions: int) -> list[int]:
    """Return the log end offset of each partition; -1 if it is not known yet."""
    asked = [
        {"partition_index": index, "timestamp": -1, "current_leader_epoch": -1} for index in range(partitions)
    ]
    answer = wire.call("list_offsets", 7, replica_id=-1, topics=[{"name": name, "partitions": asked}]).fields
    rows = sorted(answer["topics"][0]["partitions"], key=lambda row: int(row["partition_index"]))
    return [row["offset"] if row["error_code"] == 0 else -1 for row in rows]


def load_program(directory: Path, *, compiled: bool | None = None) -> list[str]:
    """Return the command of the load generator: compiled into `directory`, or in Python if there is no C
    compiler.
    """
    has_compiler = shutil.which("cc") is not None or shutil.which("gcc") is not None
    if compiled is False or (compiled is None and not has_compiler):
        return [sys.executable, "-m", "tests.performance.plan_load"]
    return [str(compile_program(SOURCE, directory))]


def write_produce_plan(
    plan: Path,
    broker: Broker,
    topic: str,
    *,
    partitions: int,
    connections: int,
    record_count: int,
    size: int,
    is_named: bool = False,
    batches: int = 1,
) -> None:
    """Write a plan of Produce v9 requests with acks=all, one idempotent producer per connection; with
    `is_named` each has a producer name.

    With more `batches` a request has one for each of so many partitions, and all but the last are without a
    producer id.
    """
    with plan.open("wb") as out:
        for connection, producer_id in enumerate(_producer_ids(broker, connections)):
            chosen = records(record_count, size)
            if is_named:
                chosen = _named(chosen, f"bench-{connection}")
            batch = Batch(chosen).of(producer_id, 0, 0).encode()
            indexes = [(connection + later) % partitions for later in range(batches)]
            plain = Batch(chosen).encode()
            data = [{"index": index, "records": plain} for index in indexes[:-1]]
            data.append({"index": indexes[-1], "records": batch})
            request = {"acks": -1, "timeout": 30_000, "topic_data": [{"name": topic, "partition_data": data}]}
            frame = _frame("produce", 9, request)
            error_at = 12 + len(topic) + (batches - 1) * PARTITION_ANSWER_BYTES
            out.write(
                PLAN_HEAD.pack(len(frame), frame.index(batch), error_at, batches * record_count, 0) + frame
            )


def _named(chosen: tuple[Record, ...], name: str) -> tuple[Record, ...]:
    headers = ((b"dedup.name", name.encode()), (b"dedup.sequence", b"0" * SEQUENCE_DIGITS))
    return tuple(replace(record, headers=headers) for record in chosen)


def write_fetch_plan(plan: Path, topic: str, *, partitions: int) -> None:
    """Write a plan of Fetch v12 requests in a fetch session, one connection per partition."""
    with plan.open("wb") as out:
        for partition in range(partitions):
            wanted = {
                "partition": partition,
                "current_leader_epoch": -1,
                "fetch_offset": FETCH_OFFSET_MARK,
                "last_fetched_epoch": -1,
                "log_start_offset": -1,
                "partition_max_bytes": FETCH_MAX_BYTES,
            }
            request = {
                "replica_id": -1,
                "max_wait": 500,
                "min_bytes": 1,
                "max_bytes": 50 * FETCH_MAX_BYTES,
                "session_id": SESSION_MARK,
                "topics": [{"topic": topic, "partitions": [wanted]}],
            }
            frame = _frame("fetch", 12, request)
            session_at = frame.index(SESSION_MARK.to_bytes(4, "big"))
            offset_at = frame.index(FETCH_OFFSET_MARK.to_bytes(8, "big"))
            out.write(PLAN_HEAD.pack(len(frame), session_at, 17 + len(topic), 0, offset_at) + frame)


def write_commit_plan(plan: Path, broker: Broker, topic: str, *, groups: int) -> None:
    """Write a plan of OffsetCommit v7 requests, each for one partition, with a connection for each of the
    groups. Wait until all have a coordinator.
    """
    with Wire(broker.bootstrap) as wire, plan.open("wb") as out:
        for number in range(groups):
            row = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}
            request = {
                "group_id": f"{topic}-{number}",
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "group_instance_id": None,
                "topics": [{"name": topic, "partitions": [row | {"committed_metadata": ""}]}],
            }
            _until_told(partial(_committed, wire, request), "a group gets no coordinator")
            frame = _frame("offset_commit", 7, request)
            out.write(PLAN_HEAD.pack(len(frame), 0, COMMIT_ERROR_AT + len(topic), 1, 0) + frame)


def _committed(wire: Wire, request: Plain) -> bool | None:
    """Commit; return None while the group has no coordinator that is ready."""
    wire.call("find_coordinator", 4, key_type=0, coordinator_keys=[request["group_id"]])
    answer = wire.call("offset_commit", 7, request).fields
    return None if answer["topics"][0]["partitions"][0]["error_code"] else True


def _frame(api: str, version: int, request: Plain) -> bytes:
    payload = encode(api, version, request)
    return struct.pack(">i", len(payload)) + payload


def _producer_ids(broker: Broker, count: int) -> list[int]:
    """Return new ids of the broker; the floor takes any."""
    if isinstance(broker, FloorBroker):
        return list(range(count))
    with Wire(broker.bootstrap) as wire:
        return [new_producer_id(wire) for _ in range(count)]


def new_producer_id(wire: Wire) -> int:
    """Return an id from InitProducerId; retry while the broker is not ready."""
    asked = {"transactional_id": None, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}

    def given() -> int | None:
        answer = wire.call("init_producer_id", 4, asked).fields
        return None if answer["error_code"] else int(answer["producer_id"])

    return _until_told(given, "the broker gives no producer id")


def _until_told(ask: Callable[[], T | None], what: str) -> T:
    """Ask until the answer is not None; return it. `what` says what is missing when that takes too long."""
    deadline = time.monotonic() + CREATE_TIMEOUT_S
    while (told := ask()) is None:
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
    return told


def run_plan(
    program: list[str],
    broker: Broker,
    plan: Path,
    kind: str,
    *,
    seconds: float,
    depth: int = 1,
    max_requests: int = 0,
    rate: float = 0.0,
) -> Sample:
    """Run the plan and observe both sides; `rate` limits the requests per second. Fails on any error answer."""
    host, _, port = broker.bootstrap.rpartition(":")
    command = [*program, kind, host, port, str(plan), str(seconds), str(max_requests), str(depth), str(rate)]
    return run_load(broker, command)


def run_load(broker: Broker, command: list[str]) -> Sample:
    """Run a load that prints its counts as JSON, and observe both sides."""
    done, broker_cpu_s, client_cpu_s, resident_bytes = _observed(broker, command)
    told: dict[str, Any] = json.loads(done.stdout)
    return Sample(
        records=told["records"],
        requests=told["requests"],
        records_per_s=told["records"] / told["seconds"],
        p99_ms=told["p99_ms"],
        broker_cpu_s=broker_cpu_s,
        client_cpu_s=client_cpu_s,
        resident_bytes=resident_bytes,
        p50_ms=told.get("p50_ms"),
    )


def run_producer_performance(
    broker: Broker,
    topic: str,
    *,
    count: int,
    size: int,
    batch_size: int,
    rate: int = -1,
    commit_interval_ms: int | None = None,
    codec: str = "none",
    bootstrap: str | None = None,
    command_config: Path | None = None,
) -> Sample:
    """Run Kafka's ProducerPerformance, idempotent with acks=all; rate and p99 are those that the tool prints.

    `bootstrap` is another listener of the broker, for which the file `command_config` has the settings of
    clients.

    With `commit_interval_ms` the tool produces in transactions and commits at this interval; it waits for
    each commit.
    """
    command = [*jvm("org.apache.kafka.tools.ProducerPerformance", TOOL_HEAP, "log4j2-tools.yaml")]
    warm_up = int(count * CLIENT_WARM_UP)
    command += ["--topic", topic, "--num-records", str(count), "--warmup-records", str(warm_up)]
    command += ["--record-size", str(size)]
    command += ["--throughput", str(rate), "--bootstrap-server", bootstrap or broker.bootstrap]
    command += ["--command-property"]
    command += [
        "acks=all",
        "enable.idempotence=true",
        f"batch.size={batch_size}",
        f"compression.type={codec}",
        "enable.metrics.push=false",
    ]
    if command_config is not None:
        command += ["--command-config", str(command_config)]
    if commit_interval_ms is not None:
        command += ["--transactional-id", topic, "--transaction-duration-ms", str(commit_interval_ms)]
    done, broker_cpu_s, client_cpu_s, resident_bytes = _observed(broker, command)
    *_, told = PERFORMANCE_LINE.finditer(done.stdout)
    assert int(told["records"]) + warm_up == count, done.stdout
    return Sample(
        records=count,
        requests=0,
        records_per_s=float(told["rate"]),
        p99_ms=float(told["p99"]),
        broker_cpu_s=broker_cpu_s,
        client_cpu_s=client_cpu_s,
        resident_bytes=resident_bytes,
    )


def run_consumer_performance(broker: Broker, topic: str, *, count: int) -> Sample:
    """Run Kafka's ConsumerPerformance: one consumer of a new group, which reads all partitions. Its rate is
    without the time of joining.
    """
    command = [*jvm("org.apache.kafka.tools.ConsumerPerformance", TOOL_HEAP, "log4j2-tools.yaml")]
    command += ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--num-records", str(count)]
    command += [
        "--timeout",
        str(int(LOAD_TIMEOUT_S * 1000)),
        "--command-property",
        "enable.metrics.push=false",
    ]
    done, broker_cpu_s, client_cpu_s, resident_bytes = _observed(broker, command)
    heads, values = ([cell.strip() for cell in line.split(",")] for line in done.stdout.strip().splitlines())
    told = dict(zip(heads, values, strict=True))
    records_read = int(told["data.consumed.in.nMsg"])
    assert records_read >= count, done.stdout
    return Sample(
        records=records_read,
        requests=0,
        records_per_s=float(told["fetch.nMsg.sec"]),
        p99_ms=math.nan,
        broker_cpu_s=broker_cpu_s,
        client_cpu_s=client_cpu_s,
        resident_bytes=resident_bytes,
    )


def _observed(
    broker: Broker, command: list[str]
) -> tuple[subprocess.CompletedProcess[str], float, float, int]:
    """Run the client; return it with the CPU seconds of broker and client and the broker's resident bytes."""
    broker_before, client_before = broker.cpu_s(), _children_cpu_s()
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S, check=False, cwd=PROJECT
    )
    assert done.returncode == 0, f"{command[0]}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    client_cpu_s = _children_cpu_s() - client_before
    return done, broker.cpu_s() - broker_before, client_cpu_s, broker.resident_bytes()


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
