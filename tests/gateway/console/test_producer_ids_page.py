"""The blocks of producer ids of a gateway and of other owners."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.console_client import ConsoleClient, console_client, text_of
from tests.support.gateway_process import GatewayProcess
from tests.support.metrics_stub import MetricsStub, metrics_stub
from tests.support.producing import begun
from tests.system.commands.conftest import seqgate


def claim(gateway: GatewayProcess, size: int, owner: str) -> Any:
    return seqgate(
        "pids", "claim", str(size), "--owner", owner, "--yes", "--json", "--data-dir", gateway.data_dir
    ).json


def test_shows_blocks_of_two_owners_with_a_gap(
    measured: ConsoleClient, measured_gateway: GatewayProcess
) -> None:
    begun(measured_gateway.bootstrap, None)
    mine = claim(measured_gateway, 30, '<script>"loader"</script>')
    following = mine["last_producer_id"] + 1
    seqgate("pids", "move", str(following + 70), "--yes", "--data-dir", measured_gateway.data_dir)
    claim(measured_gateway, 5, "other")
    page = measured.page(f"/producer-ids?id={mine['first_producer_id']}")
    text = text_of(page)
    assert "<script>&" not in page
    assert '<script>"' not in page.partition("<main")[2]
    assert f"{mine['first_producer_id']}–{mine['last_producer_id']}" in text
    assert "Whether a producer has received the id is not known here" in text
    assert '<script>"loader"</script>' in text
    whole = text_of(measured.page("/producer-ids"))
    assert f"gap of {70} ids" in whole
    assert "node-1" in whole
    assert "Overlaps in" in whole
    in_gap = text_of(measured.page(f"/producer-ids?id={following}"))
    assert "lies in a gap" in in_gap
    assert "No block holds id 999999 yet" in text_of(measured.page("/producer-ids?id=999999"))
    assert "must be a number" in text_of(measured.page("/producer-ids?id=abc"))
    assert "from must not be higher" in text_of(measured.page("/producer-ids?from=9&to=3"))


@pytest.mark.usefixtures("foreign_brokers")
def test_other_brokers_tell_no_blocks(unmeasured: ConsoleClient) -> None:
    assert "Only a Seqgate gateway tells the blocks" in text_of(unmeasured.page("/producer-ids"))


@pytest.fixture
def stub() -> Iterator[MetricsStub]:
    with metrics_stub() as listener:
        yield listener


def row(first: int, last: int, owner: str) -> dict[str, Any]:
    return {
        "first_producer_id": first,
        "last_producer_id": last,
        "owner": owner,
        "claimed_at_ms": 1_700_000_000_000,
        "used": None,
        "left": None,
        "state": "claimed",
    }


@pytest.mark.usefixtures("foreign_brokers")
def test_overlaps_come_first(measured_gateway: GatewayProcess, stub: MetricsStub) -> None:
    lower, upper = row(0, 99, "node-1"), row(50, 149, "node-2")
    stub.views["pids.list"] = {
        "store": "redis",
        "next_producer_id": 150,
        "total": 2,
        "blocks": [lower, upper],
    }
    overlap = {"first_producer_id": 50, "last_producer_id": 99, "lower": lower, "upper": upper}
    stub.views["pids.overlaps"] = {"checked": 2, "overlaps": [overlap]}
    with console_client(measured_gateway.bootstrap, metrics_url=stub.url) as console:
        page = console.page("/producer-ids")
    assert "The ids 50–99 are in two blocks" in text_of(page)
    assert 'class="map-overlap"' in page


@pytest.mark.usefixtures("foreign_brokers")
def test_thousands_of_blocks_come_in_pages(measured_gateway: GatewayProcess, stub: MetricsStub) -> None:
    blocks = [row(number * 10, number * 10 + 9, f"node-{number % 9}") for number in range(5_000)]
    stub.views["pids.list"] = {"store": "redis", "next_producer_id": 50_000, "total": 5_000, "blocks": blocks}
    stub.views["pids.overlaps"] = {"checked": 5_000, "overlaps": []}
    with console_client(measured_gateway.bootstrap, metrics_url=stub.url) as console:
        page = console.page("/producer-ids")
        text = text_of(page)
        assert "1–50 of 5,000" in text
        assert "too narrow to be drawn" in text
        assert "3 further owners" in text
        (higher,) = re.findall(r'href="([^"]*)">Zoom in<', page)
        near = text_of(console.page(higher.replace("&amp;", "&")))
        assert "1–50 of 1,2" in near
