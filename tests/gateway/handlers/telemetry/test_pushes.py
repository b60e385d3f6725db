from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from seqgate.log.format.compression import GZIP, LZ4, SNAPPY, ZSTD, compress
from tests.gateway.handlers.support import Node, open_node
from tests.gateway.handlers.telemetry.support import ask, push, subscribe
from tests.gateway.telemetry.support import counter, gauge, payload

INTERVAL_MS = 1000


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path) as node:
        await subscribe(node, metrics="*", interval_ms=str(INTERVAL_MS))
        yield node


@pytest.fixture
async def asked(node: Node) -> Any:
    return await ask(node)


def values(node: Node) -> dict[str, object]:
    return {series.name: series.value for series in node.services.telemetry.pushed_series()}


async def test_deltas_of_a_counter_add_up(node: Node, asked: Any) -> None:
    for time_ns, value in ((10, 3.0), (20, 4.0)):
        assert await push(node, asked, payload(counter("sent", value, time_ns=time_ns))) == "none"
        node.clock.time_ms += INTERVAL_MS
    assert values(node) == {"sent": 7.0}
    assert node.services.telemetry.counters.pushes == 2


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
async def test_each_codec_is_taken(node: Node, asked: Any, codec: int) -> None:
    content = compress(codec, payload(gauge("depth", 3.0)))
    assert await push(node, asked, content, compression_type=codec) == "none"
    assert values(node) == {"depth": 3.0}


async def test_a_push_without_metrics_is_taken(node: Node, asked: Any) -> None:
    assert await push(node, asked) == "none"
    assert values(node) == {}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"client_instance_id": None}, "invalid_request"),
        ({"client_instance_id": uuid.UUID(int=1)}, "invalid_request"),
        ({"subscription_id": 12}, "unknown_subscription_id"),
        ({"compression_type": 5}, "unsupported_compression_type"),
        ({"compression_type": 4}, "invalid_record"),
        ({"metrics": bytes((1 << 20) + 1)}, "telemetry_too_large"),
        ({"metrics": compress(ZSTD, bytes(5 << 20)), "compression_type": ZSTD}, "telemetry_too_large"),
        ({"metrics": b"\xff\xff"}, "invalid_record"),
    ],
)
async def test_a_refused_push_is_counted_and_changes_nothing(
    node: Node, asked: Any, changes: dict[str, Any], error: str
) -> None:
    assert await push(node, asked, **{"metrics": payload(gauge("depth", 3.0)), **changes}) == error
    counters = node.services.telemetry.counters
    assert (counters.pushes, dict(counters.refused)) == (0, {error: 1})
    assert values(node) == {}


async def test_an_early_push_is_refused(node: Node, asked: Any) -> None:
    assert await push(node, asked, payload(gauge("depth", 1.0))) == "none"
    node.clock.time_ms += INTERVAL_MS - 1
    assert await push(node, asked, payload(gauge("depth", 2.0))) == "throttling_quota_exceeded"
    node.clock.time_ms += 1
    assert await push(node, asked, payload(gauge("depth", 3.0))) == "none"
    assert values(node) == {"depth": 3.0}


async def test_a_terminating_push_is_the_last(node: Node, asked: Any) -> None:
    assert await push(node, asked, payload(counter("sent", 1.0, time_ns=1))) == "none"
    last = payload(counter("sent", 1.0, time_ns=2))
    assert await push(node, asked, last, terminating=True) == "none"
    assert await push(node, asked, last, terminating=True) == "invalid_request"
    assert values(node) == {"sent": 2.0}


async def test_the_last_values_of_a_closed_client_stay_until_they_expire(node: Node, asked: Any) -> None:
    await push(node, asked, payload(gauge("depth", 1.0)), terminating=True)
    node.peer.hang_up()
    node.clock.time_ms += 59_999
    assert values(node) == {"depth": 1.0}
    node.clock.time_ms += 1
    assert values(node) == {}


async def test_series_beyond_the_limit_are_counted(tmp_path: Path) -> None:
    async with open_node(tmp_path, "seqgate.telemetry.series.max.per.client=2") as node:
        asked = await ask(node)
        assert await push(node, asked, payload(*(gauge(f"m{number}", 1.0) for number in range(5)))) == "none"
        assert node.services.telemetry.series_count == 2
        assert node.services.telemetry.counters.dropped_points == 3


async def test_a_client_may_push_through_another_gateway(tmp_path: Path) -> None:
    async with open_node(tmp_path / "one") as one, open_node(tmp_path / "other") as other:
        for node in (one, other):
            await subscribe(node, metrics="a", interval_ms="1000")
        asked = await ask(one)
        assert await push(other, asked, payload(gauge("depth", 1.0))) == "none"


async def test_a_node_that_stops_throttles(node: Node, asked: Any) -> None:
    node.services.telemetry.stop()
    assert await push(node, asked, payload(gauge("depth", 1.0))) == "throttling_quota_exceeded"
