"""Lists longer than a page arrive complete over the control socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seqgate.gateway.admin import client
from seqgate.gateway.admin.client import Client, ask, ask_all
from seqgate.gateway.admin.names.messages import NamesRequest
from seqgate.gateway.admin.pids.messages import ListBlocksRequest
from seqgate.gateway.admin.producers.messages import ListProducersRequest
from seqgate.gateway.admin.request import PAGE_ROWS, RUNNING, STOPPED, ControlError, NotRunning
from seqgate.gateway.admin.server import ControlServer
from seqgate.gateway.admin.status.messages import StatusRequest
from seqgate.gateway.cluster.cache.worker_caches import begin_caches, cache_of
from seqgate.gateway.config import load_config
from seqgate.gateway.runtime.topics.producer_ids import EmbeddedBlockStore
from seqgate.log.sharing import WORKERS
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.log.support import batch

MANY = 2 * PAGE_ROWS + 500


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """A node with a control socket."""
    async with open_node(tmp_path) as opened:
        control = ControlServer(opened.services, tmp_path)
        assert await control.start()
        yield opened
        await control.stop()


async def test_blocks_of_a_running_gateway(node: Node, tmp_path: Path) -> None:
    store = EmbeddedBlockStore(node.services.topics.metadata_log, 0)
    await asyncio.gather(*(store.claim(10, "loader", NOW_MS) for _ in range(MANY)))
    pages = await asyncio.to_thread(ask_all, tmp_path, ListBlocksRequest())
    rows = [row.first_producer_id for page in pages for row in page.blocks]
    assert rows == list(range(0, 10 * MANY, 10))
    assert {page.total for page in pages} == {MANY}
    (latest,) = await asyncio.to_thread(ask_all, tmp_path, ListBlocksRequest(MANY - 3))
    assert [row.first_producer_id for row in latest.blocks] == rows[-3:]


async def test_producers_of_a_running_gateway(node: Node, tmp_path: Path) -> None:
    for topic in ("a", "b"):
        await create(node, topic)
        partition = node.services.partitions.registry.get(topic, 0)
        assert partition is not None
        for producer_id in range(MANY):
            partition.append(batch(producer_id=producer_id, base_sequence=0), NOW_MS)
    pages = await asyncio.to_thread(ask_all, tmp_path, ListProducersRequest())
    rows = [(row.topic, row.producer_id) for page in pages for row in page.producers]
    assert rows == [(topic, producer_id) for topic in ("a", "b") for producer_id in range(MANY)]
    assert [page.complete for page in pages] == [False] * (len(pages) - 1) + [True]


async def test_the_data_directory_answers_where_no_gateway_runs(tmp_path: Path) -> None:
    client = Client(tmp_path, load_config(overrides=[f"log.dirs={tmp_path}"]))
    async with open_node(tmp_path) as node:
        control = ControlServer(node.services, tmp_path)
        await control.start()
        gateway, (page,) = await asyncio.to_thread(client.ask_or_read_all, NamesRequest())
        assert (gateway, page.names, page.counters is None) == (RUNNING, [], False)
        await control.stop()
    gateway, (page,) = client.ask_or_read_all(NamesRequest())
    assert (gateway, page.names, page.counters) == (STOPPED, [], None)
    with pytest.raises(ControlError, match="limit must be between 1 and 10000, not 0"):
        client.ask_or_read(NamesRequest(limit=0))
    with pytest.raises(ControlError, match="only a running gateway can answer status"):
        client.ask_or_read(StatusRequest())


def test_the_directories_of_workers_have_one_name() -> None:
    assert client.WORKERS == WORKERS


@pytest.mark.parametrize("kind", ["one process", "workers", "workers of a bucket"])
def test_where_no_gateway_runs_the_data_directory_is_named(tmp_path: Path, kind: str) -> None:
    if kind == "workers":
        (tmp_path / WORKERS / "1").mkdir(parents=True)
    elif kind == "workers of a bucket":
        begin_caches(tmp_path, 1)
        cache_of(tmp_path, 1).mkdir()
    with pytest.raises(NotRunning) as told:
        ask(tmp_path, StatusRequest())
    assert str(told.value) == f"no gateway is running on {tmp_path}"
