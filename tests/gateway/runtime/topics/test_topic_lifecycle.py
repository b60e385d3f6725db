"""A start finds partitions that the metadata does not have: it deletes only those that a client had deleted."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import uuid
import weakref
from pathlib import Path
from unittest.mock import Mock

import pytest

from seqgate.gateway.metadata.image import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from seqgate.gateway.runtime.topics.metadata_log import METADATA_TOPIC_ID, open_metadata_log
from seqgate.log import CorruptRecord, IncompatibleFormat, LogDirectory, Storage, retention
from seqgate.log.directory.stored_logs import CLEAN_SHUTDOWN, RECOVERY_POINTS
from seqgate.log.files.checkpoints import encode_partition_metadata
from seqgate.log.files.file_names import LOG_SUFFIX, PARTITION_METADATA, offset_name
from seqgate.log.state import names as names_state
from tests.gateway.handlers.requests import alter, create, delete
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.support.batches import Batch

METADATA = "__cluster_metadata-0"
TOPIC_RESOURCE = 2


async def written(path: Path) -> bytes:
    """Create a stopped node with one record in the topic `orders`; return the bytes of its log file."""
    async with open_node(path) as node:
        await create(node, "orders")
        append(node)
    return (path / "orders-0" / offset_name(0, LOG_SUFFIX)).read_bytes()


def append(node: Node) -> int:
    partition = node.services.partitions.registry.get("orders", 0)
    assert partition is not None
    return partition.append(Batch(base_timestamp=NOW_MS).encode(), NOW_MS).base_offset


def kept(path: Path) -> list[bytes]:
    """Return the log files in directories that were set aside."""
    return [file.read_bytes() for file in path.glob(f"orders-0.*-stray/*{LOG_SUFFIX}")]


async def test_records_under_an_unknown_topic_id_are_kept(tmp_path: Path) -> None:
    records = await written(tmp_path)
    (tmp_path / "orders-0" / PARTITION_METADATA).write_bytes(encode_partition_metadata(uuid.UUID(int=9)))
    async with open_node(tmp_path) as node:
        assert node.services.partitions.registry.get("orders", 0) is None, (
            "the partition's name must not be free for a new log yet"
        )
        async with asyncio.timeout(60):
            while node.services.partitions.registry.get("orders", 0) is None:
                await asyncio.sleep(0)
        assert append(node) == 0
    assert kept(tmp_path) == [records]


async def test_records_of_a_topic_that_the_metadata_lost_are_kept(tmp_path: Path) -> None:
    async with open_node(tmp_path / "a") as node:
        await create(node, "other")
    records = await written(tmp_path / "b")
    for name in (METADATA, "meta.properties"):
        source, target = tmp_path / "a" / name, tmp_path / "b" / name
        shutil.rmtree(target) if target.is_dir() else target.unlink()
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    async with open_node(tmp_path / "b") as node:
        assert node.services.partitions.registry.get("orders", 0) is None
    assert kept(tmp_path / "b") == [records]


async def test_leftovers_of_a_deleted_topic_are_deleted(tmp_path: Path) -> None:
    await written(tmp_path / "data")
    shutil.copytree(tmp_path / "data" / "orders-0", tmp_path / "orders-0")
    async with open_node(tmp_path / "data") as node:
        await delete(node, "orders")
    shutil.copytree(tmp_path / "orders-0", tmp_path / "data" / "orders-0")
    async with open_node(tmp_path / "data"):
        pass
    assert not list((tmp_path / "data").glob("orders-0.*-stray"))
    assert not (tmp_path / "data" / "orders-0").exists()


@pytest.mark.parametrize("loss", ["log", "identity", "directory"])
async def test_a_start_without_the_metadata_is_refused(tmp_path: Path, loss: str) -> None:
    records = await written(tmp_path)
    if loss == "log":
        (tmp_path / METADATA / offset_name(0, LOG_SUFFIX)).write_bytes(b"")
    elif loss == "identity":
        (tmp_path / METADATA / PARTITION_METADATA).write_bytes(b"version: 0\ntopic_id: x")
    else:
        shutil.rmtree(tmp_path / METADATA)
    reason = "is damaged: offsets 0 to 1" if loss == "log" else "put it back"
    with pytest.raises(CorruptRecord, match=reason):
        async with open_node(tmp_path):
            pass
    assert (tmp_path / "orders-0" / offset_name(0, LOG_SUFFIX)).read_bytes() == records


@pytest.mark.parametrize("loss", ["log", "directory"])
@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        ("checkpoint", "it was durable up to offset 2; put it back"),
        ("partition", "there are other partitions, such as orders-0"),
    ],
)
async def test_a_start_without_the_metadata_of_empty_partitions_is_refused(
    tmp_path: Path, loss: str, evidence: str, reason: str
) -> None:
    async with open_node(tmp_path) as node:
        await create(node, "orders")
        assert node.services.partitions.registry.get("orders", 0) is not None
    if evidence == "checkpoint":
        shutil.rmtree(tmp_path / "orders-0")
    else:
        for name in (RECOVERY_POINTS, CLEAN_SHUTDOWN):
            (tmp_path / name).unlink()
    if loss == "log":
        for path in (tmp_path / METADATA).iterdir():
            path.write_bytes(b"")
    else:
        shutil.rmtree(tmp_path / METADATA)
    for _ in range(
        2
    ):  # The second start must be refused, too: the first one must not delete the files that show the loss.
        directory = LogDirectory.open(tmp_path, Storage(), node_id=1, now_ms=lambda: NOW_MS)
        with pytest.raises(CorruptRecord, match=reason):
            open_metadata_log(directory)
        directory.close()


async def test_metadata_with_a_flipped_bit_is_not_replayed(tmp_path: Path) -> None:
    await written(tmp_path)
    path = tmp_path / METADATA / offset_name(0, LOG_SUFFIX)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"orders", b"orderr"))
    with pytest.raises(CorruptRecord, match="damaged at offset 0"):
        async with open_node(tmp_path):
            pass


async def test_metadata_of_a_later_version_is_reported_as_such(tmp_path: Path) -> None:
    await written(tmp_path)
    metadata = encode_partition_metadata(METADATA_TOPIC_ID).replace(b"version: 0", b"version: 9")
    (tmp_path / METADATA / PARTITION_METADATA).write_bytes(metadata)
    with pytest.raises(IncompatibleFormat, match="version 9"):
        async with open_node(tmp_path):
            pass


async def test_a_log_that_can_not_take_its_configuration_goes_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_node(tmp_path) as node:
        await create(node, "orders")
        append(node)
        partition = node.services.partitions.registry.get("orders", 0)
        assert partition is not None
        with monkeypatch.context() as patch:
            patch.setattr(names_state, "newest_names", Mock(side_effect=OSError("the disk fails")))
            await alter(node, TOPIC_RESOURCE, "orders", {"message.deduplication.enable": "true"})
        assert partition.log.offline_because is not None
        assert "the disk fails" in partition.log.offline_because
        partition.log.reopen(NOW_MS)
        assert partition.log.record_states.names is not None
        assert append(node) == 1


@pytest.mark.parametrize("deep", ["false", "true"])
async def test_records_of_coordinators_are_not_decoded_again(tmp_path: Path, deep: str) -> None:
    async with open_node(tmp_path, f"seqgate.log.deep.validation={deep}") as node:
        services = node.services
        await create(node, "orders", configs={"cleanup.policy": "compact"})
        await services.coordinators.groups.ensure_topic()
        await services.coordinators.shares.ensure_topic()
        await services.coordinators.transactions.ensure_topic()
        decodes = {
            topic: {partition.log.config.deep_validation for partition in partitions.all()}
            for topic, partitions in services.partitions.registry.by_name.items()
        }
        internal = [OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC]
        assert decodes == {"orders": {True}} | {topic: {False} for topic in internal}


@pytest.mark.parametrize(
    "configs",
    [{}, {"delivery.delay.header": "deliver-after"}, {"message.deduplication.enable": "true"}],
    ids=["plain", "delayed", "deduplicated"],
)
async def test_the_log_of_a_deleted_topic_is_freed_without_the_garbage_collector(
    tmp_path: Path, configs: dict[str, str | None]
) -> None:
    """The gateway hides the objects of open partitions from the garbage collector, so a deleted log must be
    freed without it.
    """
    async with open_node(tmp_path) as node:
        await create(node, "orders", configs=configs)
        append(node)
        partition = node.services.partitions.registry.get("orders", 0)
        assert partition is not None
        log = weakref.ref(partition.log)
        del partition
        await node.services.partitions.flusher.idle()
        gc.disable()
        try:
            await delete(node, "orders")
            async with asyncio.timeout(60):
                while log() is not None:  # a thread may still hold the round that it flushed
                    await asyncio.sleep(0)
        finally:
            gc.enable()


async def test_a_compacted_partition_opens_once_its_active_segment_must_close(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        await create(node, "orders")
        append(node)
        compacts = {"cleanup.policy": "compact", "max.compaction.lag.ms": "3000"}
        await alter(node, TOPIC_RESOURCE, "orders", compacts)
    os.utime(tmp_path / "orders-0" / offset_name(0, LOG_SUFFIX), (NOW_MS / 1000, NOW_MS / 1000))
    async with open_node(tmp_path) as node:
        orders, key = node.services.partitions.registry.by_name["orders"], ("orders", 0)
        node.services.topics.lifecycle.open_if_retention_is_due(key, NOW_MS + 3000)
        assert orders.peek(0) is None
        node.services.topics.lifecycle.open_if_retention_is_due(key, NOW_MS + 3001)
        opened = orders.peek(0)
        assert opened is not None
        assert retention.roll_by_time(opened.log, NOW_MS + 3001)
