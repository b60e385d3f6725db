"""A gateway in a cgroup whose memory is smaller than its log, as in a container: it keeps what was read while
there is room, and is not killed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.performance.loads import PAGE_CACHE
from tests.support.batches import Batch, read_batches, records
from tests.support.gateway_process import GatewayProcess
from tests.support.missing import missing
from tests.support.wire import Wire

LIMIT_BYTES = 600 << 20
BACKLOG, TAIL = "backlog", "tail"
BATCH_BYTES = 900_000
BACKLOG_BATCHES, TAIL_BATCHES = 160, 900
"""The backlog fits beside what the tail's readers need; both together are larger than the limit."""
A_FEW_BYTES = 8 << 20


@pytest.fixture
def limited() -> Iterator[Path]:
    """A cgroup with a limit of memory, of either version."""
    root = Path("/sys/fs/cgroup/memory")
    limit = "memory.limit_in_bytes"
    if not root.is_dir():
        root, limit = root.parent, "memory.max"
    folder = root / f"seqgate-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / limit).write_text(str(LIMIT_BYTES))
    except OSError as error:
        if folder.is_dir():
            folder.rmdir()
        missing(f"a memory cgroup can't be made in {root}: {error} (it takes root)")
    yield folder
    folder.rmdir()


def kills(cgroup: Path) -> int:
    """Return how many processes of the cgroup the kernel has killed for want of memory."""
    for name in ("memory.oom_control", "memory.events"):
        if (cgroup / name).exists():
            rows = (row.split() for row in (cgroup / name).read_text().splitlines())
            return next(int(value) for key, value in rows if key == "oom_kill")
    raise AssertionError(f"{cgroup} does not tell")


def fill(wire: Wire, topic: str, count: int) -> None:
    new = {"name": topic, "num_partitions": 1, "replication_factor": 1}
    assert not wire.call("create_topics", 7, topics=[new], timeout=60_000).fields["topics"][0]["error_code"]
    batch = Batch(records(1, BATCH_BYTES)).encode()
    for offset in range(count):
        topics = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
        answer = wire.call("produce", 9, acks=-1, timeout=60_000, topic_data=topics).fields
        row = answer["responses"][0]["partition_responses"][0]
        assert (row["error_code"], row["base_offset"]) == (0, offset)


def read_all(gateway: GatewayProcess, wire: Wire, topic: str, count: int) -> int:
    """Read a topic from its start to its end; return how many bytes came from the disk for it."""
    before = disk_bytes(gateway)
    offset = 0
    while offset < count:
        partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 21}
        partition |= {"current_leader_epoch": -1, "log_start_offset": -1}
        limits = {"replica_id": -1, "max_wait": 500, "min_bytes": 1, "max_bytes": 1 << 21}
        session = {"isolation_level": 0, "session_id": 0, "session_epoch": -1}
        topics = [{"topic": topic, "partitions": [partition]}]
        answer = wire.call("fetch", 12, limits, **session, topics=topics).fields
        (row,) = answer["responses"][0]["partitions"]
        assert row["error_code"] == 0
        batches, _ = read_batches(row["records"])
        found = [batch.base_offset for batch in batches]
        assert found == list(range(offset, offset + len(found)))
        offset += len(found)
    return disk_bytes(gateway) - before


def disk_bytes(gateway: GatewayProcess) -> int:
    rows = (row.split() for row in Path(f"/proc/{gateway.pid}/io").read_text().splitlines())
    return next(int(value) for name, value in rows if name == "read_bytes:")


@pytest.mark.tier("nightly")
def test_a_second_group_reads_nothing_from_the_disk(tmp_path: Path, limited: Path) -> None:
    enter = ("sh", "-c", f'echo $$ > {limited}/cgroup.procs; exec "$@"', "enter")
    settings = {"log.flush.interval.messages": str(PAGE_CACHE)}
    with (
        GatewayProcess(tmp_path / "data", settings=settings, under=enter) as gateway,
        Wire(gateway.bootstrap) as wire,
    ):
        fill(wire, BACKLOG, BACKLOG_BATCHES)
        fill(wire, TAIL, TAIL_BATCHES)
        backlog_bytes = BACKLOG_BATCHES * BATCH_BYTES
        assert read_all(gateway, wire, BACKLOG, BACKLOG_BATCHES) > backlog_bytes // 2, "it was still cached"
        assert read_all(gateway, wire, BACKLOG, BACKLOG_BATCHES) < A_FEW_BYTES
        read_all(gateway, wire, TAIL, TAIL_BATCHES)
        assert kills(limited) == 0
