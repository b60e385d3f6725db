"""The status of a running gateway."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from seqgate.gateway.admin.status import Status, StatusRequest, _rows, _troubles, joined_status
from seqgate.gateway.config import Config
from seqgate.gateway.console.health import problems_of_gateways
from tests.gateway.admin.answers import TRAFFIC, UPTIME_MS, answer
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import NOW_MS, open_node
from tests.gateway.runtime.backlog.test_backlog import batch

DAY_MS = 86_400_000


async def test_counts_and_offline_partitions(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        await create(node, "a", 2)
        await create(node, "b")
        partition = node.services.partitions.registry.get("a", 1)
        assert partition is not None
        partition.log.go_offline("No space left on device")
        status = await answer(node, StatusRequest())
        assert (status.topics, status.partitions, status.uptime_ms) == (2, 3, UPTIME_MS)
        counts = (status.connections, status.refused_connections, status.requests, status.failed_logins)
        assert counts == TRAFFIC[:4]
        assert (status.flush_rounds, status.flush_failures) == (node.services.partitions.flusher.rounds, 0)
        assert status.listeners == {"PLAINTEXT": "gateway.example:9092"}
        assert status.bound == {"PLAINTEXT": "[::]:9092"}
        (offline,) = status.offline_partitions
        assert (offline.topic, offline.partition, offline.reason) == ("a", 1, "No space left on device")


async def test_a_producer_is_counted_once_however_many_partitions_remember_it(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        await create(node, "orders", 3)
        for partition in node.services.partitions.registry.by_name["orders"].all():
            for producer_id in (7, 8):
                partition.append(batch(producer_id=producer_id, sequence=0), NOW_MS)
        status = await answer(node, StatusRequest())
        assert (status.producers, status.counters.remembered) == (2, 6)
        assert ("producers", "2 active") in _rows(status)


async def test_the_age_of_certificates(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        node.services.node.tls_listeners = {"FRESH": _Shown(20), "OLD": _Shown(3), "GONE": _Shown(-1)}
        status = await answer(node, StatusRequest())
        assert [(row.listener, row.valid_until_ms) for row in status.certificates] == [
            ("FRESH", NOW_MS + 20 * DAY_MS),
            ("OLD", NOW_MS + 3 * DAY_MS),
            ("GONE", NOW_MS - DAY_MS),
        ]
        assert [row.warning for row in status.certificates] == [
            None,
            "the certificate expires in 3 days; replace it before, otherwise clients refuse it",
            "the certificate has expired, so clients refuse it",
        ]


class _Shown:
    """A listener whose certificate is valid for some days."""

    def __init__(self, days: int) -> None:
        self.valid_until_ms = NOW_MS + days * DAY_MS

    async def check(self, proposed: Config) -> None: ...

    def take_checked(self) -> None: ...


async def test_a_disk_that_is_short_of_room(tmp_path: Path) -> None:
    async with open_node(tmp_path, f"seqgate.log.min.free.bytes={2**62}") as node:
        assert (await answer(node, StatusRequest())).is_disk_short is False
        node.services.upkeep.disk_room.check_free_space()
        node.services.upkeep.disk_room.refused_batches = 3
        status = await answer(node, StatusRequest())
        assert (status.is_disk_short, status.min_free_bytes, status.disk_refusals) == (True, 2**62, 3)
        assert status.free_bytes == node.services.upkeep.disk_room.free_bytes


def shown_free(*of_each: Status) -> list[str]:
    return [value for name, value in _rows(joined_status(of_each)) if name == "free on disk"]


async def test_the_free_bytes_are_those_of_the_fullest_disk(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        status = await answer(node, StatusRequest())
    one, other = (replace(status, free_bytes=free << 30) for free in (3, 2))
    assert shown_free(one) == ["3 GiB"]
    assert shown_free(one, other, replace(status, free_bytes=None)) == ["2 GiB"]
    assert shown_free(replace(status, free_bytes=None)) == []


async def test_a_lease_that_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_node(tmp_path) as node:
        sound = await answer(node, StatusRequest())
        monkeypatch.setattr(node.services.partitions.registry, "lease", SimpleNamespace(is_over=lambda: True))
        deposed = await answer(node, StatusRequest())
        monkeypatch.undo()
    assert not list(_troubles(sound))
    for status in (deposed, joined_status([sound, deposed])):
        ((heading, _),) = _troubles(status)
        assert heading == "LEASE"
    (problem,) = problems_of_gateways([deposed])
    assert problem.is_bad


async def test_ids_left_count_the_block_claimed_ahead(tmp_path: Path) -> None:
    async with open_node(tmp_path, "seqgate.producer.id.block.size=10") as node:
        await node.services.coordinators.producer_ids.start()
        assert (await answer(node, StatusRequest())).producer_ids_left == 10


async def test_a_missing_worker_is_told(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        status = await answer(node, StatusRequest())
    told = joined_status([status], missing=["the worker on node 2 gave no answer: it is not running now"])
    assert [row.node_id for row in told.workers] == [status.node_id]
    assert list(_troubles(told)) == [("WORKER", told.missing_workers[0])]
    assert not list(_troubles(joined_status([status])))


async def test_gateways_may_have_other_listeners(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        status = await answer(node, StatusRequest())
    one = replace(status, listeners={"A": "h:1", "NEW": "h:9"})
    assert joined_status([one, replace(status, listeners={"A": "h:2"})]).listeners == {
        "A": "h:1, h:2",
        "NEW": "h:9",
    }
