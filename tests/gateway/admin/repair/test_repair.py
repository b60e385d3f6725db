"""The damage that `seqgate status` reports, and the records that `seqgate repair` gives up."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from seqgate.gateway.admin.repair import Repair
from seqgate.gateway.admin.status import StatusRequest
from seqgate.gateway.cli import app
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.log import LogDirectory, Storage
from seqgate.log.directory.stored_logs import RECOVERY_POINTS
from seqgate.log.format.record_batch import whole_batches
from tests.gateway.admin.answers import answer
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.log.support import append_end_marker, batch, flush, read_log

BATCHES = 6


async def written(path: Path) -> Path:
    """Return the segment file of a topic in a stopped gateway."""
    async with open_node(path) as node:
        await create(node, "orders")
        partition = await opened(node)
        for _ in range(BATCHES):
            info = partition.append(batch(2), NOW_MS)
        assert await partition.persisted(info.last_offset)
    return path / "orders-0" / f"{0:020d}.log"


def flip(path: Path, number: int, byte: int = 70) -> None:
    content = bytearray(path.read_bytes())
    position, _ = list(whole_batches(content))[number]
    content[position + byte] ^= 4
    path.write_bytes(content)


def repair(path: Path, *options: str) -> tuple[Repair, int]:
    result = CliRunner().invoke(app, ["repair", "--json", "--data-dir", str(path), *options])
    return msgspec.json.decode(result.stdout, type=Repair), result.exit_code


def contents(path: Path) -> dict[str, bytes]:
    return {str(found): found.read_bytes() for found in path.rglob("*") if found.is_file()}


async def test_status_lists_it(tmp_path: Path) -> None:
    segment = await written(tmp_path)
    flip(segment, 2)
    for name in (".kafka_cleanshutdown", "stored-logs"):
        (tmp_path / name).unlink(missing_ok=True)  # as after a kill
    async with open_node(tmp_path) as node:
        (found,) = (await answer(node, StatusRequest())).damaged
        assert (found.topic, found.partition, found.first_offset, found.end_offset) == ("orders", 0, 4, 6)
        assert (found.file, found.reason) == ("orders-0/" + segment.name, "the CRC is wrong")


async def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    flip(await written(tmp_path), 2)
    before = contents(tmp_path)
    found, code = repair(tmp_path)
    assert ([(row.first_offset, row.end_offset) for row in found.damaged], found.offsets) == ([(4, 6)], 2)
    assert (found.given_up, code) == (False, 1)
    assert contents(tmp_path) == before


async def opened(node: Node) -> Partition:
    """Return the partition. If its files are not as a clean stop has left them, a thread recovers it first."""
    registry = node.services.partitions.registry
    registry.get("orders", 0)
    await node.services.partitions.recoveries.finish()
    partition = registry.get("orders", 0)
    assert partition is not None
    return partition


@pytest.mark.parametrize("number", [0, 2, BATCHES - 1])
@pytest.mark.parametrize("byte", [8, 16, 23, 70])
@pytest.mark.parametrize("clean", [True, False])
async def test_giving_up_keeps_all_others_at_their_offsets(
    tmp_path: Path, number: int, byte: int, *, clean: bool
) -> None:
    segment = await written(tmp_path)
    flip(segment, number, byte)
    if not clean:
        for name in (".kafka_cleanshutdown", "stored-logs"):
            (tmp_path / name).unlink(missing_ok=True)
    found, code = repair(tmp_path, "--apply")
    assert (found.offsets, found.given_up, code) == (2, True, 0)
    again, code = repair(tmp_path)
    assert (again.damaged, code) == ([], 0)
    async with open_node(tmp_path) as node:
        assert (await answer(node, StatusRequest())).damaged == []
        partition = await opened(node)
        log = partition.log
        offset, offsets = 0, []
        while offset < log.log_end_offset:
            data = read_log(log, offset, 1 << 20, upper_bound=log.log_end_offset)
            if not data:
                break
            for _, header in whole_batches(data):
                offsets.append(header.base_offset)
                offset = header.last_offset + 1
        assert offsets == [2 * each for each in range(BATCHES) if each != number]
        assert partition.append(batch(), NOW_MS).base_offset == 2 * BATCHES


async def test_the_directory_is_left_cleanly_stopped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flip(await written(tmp_path), 2)
    repair(tmp_path, "--yes")
    caplog.clear()
    async with open_node(tmp_path) as node:
        # Served at once: no thread recovers the partition first.
        assert node.services.partitions.registry.get("orders", 0) is not None
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_bytes_that_are_missing(tmp_path: Path) -> None:
    segment = await written(tmp_path)
    position, _ = list(whole_batches(segment.read_bytes()))[4]
    os.truncate(segment, position)
    found, _ = repair(tmp_path)
    assert [(row.first_offset, row.end_offset, row.size_bytes) for row in found.damaged] == [(8, 12, 0)]
    found, _ = repair(tmp_path, "--apply")
    assert found.offsets == 4
    assert repair(tmp_path)[0].damaged == []
    async with open_node(tmp_path) as node:
        partition = await opened(node)
        assert partition.append(batch(), NOW_MS).base_offset == 12


async def test_it_tells_what_the_recovery_cuts_off(tmp_path: Path) -> None:
    flip(await written(tmp_path), 2)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / RECOVERY_POINTS).unlink()  # as after a kill before the first checkpoint
    assert repair(tmp_path) == (Repair([], 0, given_up=False), 0), "the batch may never have been durable"
    found, code = repair(tmp_path, "--yes")
    (row,) = found.cut
    assert (found.damaged, code, (row.first_offset, row.last_offset)) == ([], 0, (6, 2 * BATCHES - 1))
    assert (tmp_path / row.file).stat().st_size == row.size_bytes
    assert repair(tmp_path, "--yes")[0].cut == [], "that was told"


async def test_a_running_gateway_is_left_alone(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        await create(node, "orders")
        result = CliRunner().invoke(app, ["repair", "--apply", "--data-dir", str(tmp_path)])
        assert (result.exit_code, "stop it first" in result.stderr) == (1, True)


async def test_it_tells_how_many(tmp_path: Path) -> None:
    flip(await written(tmp_path), 2)
    result = CliRunner().invoke(app, ["repair", "--data-dir", str(tmp_path)])
    assert "2 offsets would be given up: at most so many records." in result.stdout
    assert (result.exit_code, "--yes does it without asking" in result.stdout) == (1, True)
    result = CliRunner().invoke(app, ["repair", "--yes", "--data-dir", str(tmp_path)])
    assert "2 offsets given up" in result.stdout
    result = CliRunner().invoke(app, ["repair", "--data-dir", str(tmp_path)])
    assert result.stdout == "No durable batch is damaged.\n"


async def test_an_undecided_transaction_is_decided_by_the_next_marker(tmp_path: Path) -> None:
    def opened() -> LogDirectory:
        return LogDirectory.open(tmp_path, Storage(), node_id=1, now_ms=lambda: NOW_MS)

    await written(tmp_path)
    directory = opened()
    log = directory.get("orders", 0)
    assert log is not None
    for sequence in range(2):
        log.append(batch(producer_id=9, base_sequence=sequence, is_transactional=True), now_ms=NOW_MS)
        log.append(batch(2), now_ms=NOW_MS)
    append_end_marker(log, 9, 0, commit=True, coordinator_epoch=0, now_ms=NOW_MS)
    flush(log)
    directory.checkpoint()
    directory.close(clean=False)
    flip(tmp_path / "orders-0" / f"{0:020d}.log", BATCHES + 1)
    assert (tmp_path / RECOVERY_POINTS).read_text().count("orders 0 19")
    directory = opened()
    log = directory.get("orders", 0)
    assert log is not None
    assert (log.last_stable_offset, log.log_end_offset) == (12, 19)
    directory.close()
    found, _ = repair(tmp_path, "--apply")
    assert [(row.offsets, row.undecided_from) for row in found.damaged] == [(2, 12)]
    directory = opened()
    log = directory.get("orders", 0)
    assert log is not None
    assert log.last_stable_offset == 19
    directory.close()
