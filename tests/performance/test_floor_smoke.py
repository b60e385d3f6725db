"""The floor stores every request that it answers, and the table sets Seqgate beside it."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.performance.brokers import FloorBroker
from tests.performance.compare import main
from tests.performance.loads import (
    EVERY_MESSAGE,
    PAGE_CACHE,
    PLAN_HEAD,
    create_topic,
    delete_topic,
    load_program,
    run_plan,
    write_produce_plan,
)

CONNECTIONS = 8
REQUESTS = 1000
GREETING_BYTES = 10
"""The bytes of the request with which the load generator begins each connection."""


@pytest.fixture
def floor(tmp_path: Path) -> Iterator[FloorBroker]:
    with FloorBroker(tmp_path / "floor") as broker:
        yield broker


@pytest.mark.parametrize("flush_messages", [PAGE_CACHE, EVERY_MESSAGE])
def test_answered_requests_are_in_the_file(floor: FloorBroker, tmp_path: Path, flush_messages: str) -> None:
    plan = tmp_path / "plan"
    create_topic(floor, "any", partitions=1, flush_messages=flush_messages)
    write_produce_plan(plan, floor, "any", partitions=1, connections=CONNECTIONS, record_count=3, size=100)
    sample = run_plan(
        load_program(tmp_path), floor, plan, "produce", seconds=30, depth=5, max_requests=REQUESTS
    )
    assert (sample.requests, sample.records) == (REQUESTS, 3 * REQUESTS)
    frame_bytes, *_ = PLAN_HEAD.unpack(plan.read_bytes()[: PLAN_HEAD.size])
    stored_bytes = REQUESTS * (frame_bytes - 4) + CONNECTIONS * GREETING_BYTES
    assert floor.file.stat().st_size == stored_bytes
    delete_topic(floor, "any")
    assert floor.file.stat().st_size == 0


def test_requests_may_come_in_parts(floor: FloorBroker) -> None:
    first, second = (struct.pack(">ihhi", 12, 0, 9, number) + b"body" for number in (7, 8))
    host, _, port = floor.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port))) as client, client.makefile("rb") as answers:
        for part in (first[:3], first[3:] + second[:9], second[9:]):
            client.sendall(part)
        for number in (7, 8):
            size, correlation_id = struct.unpack(">ii", answers.read(8))
            assert correlation_id == number
            answers.read(size - 4)
        assert floor.file.read_bytes() == first[4:] + second[4:]
        client.sendall(struct.pack(">i", 1 << 20))
        assert not answers.read(), "a request that the buffer can't hold ends the connection"


def test_the_table_has_the_ratio_to_the_floor(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--beside", "floor", "--rows", "one-1", "--durability", "page cache", "--quick"]) == 0
    table = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| one")]
    assert [cells[2] for cells in table] == ["Seqgate", "the floor", "ratio to the floor"]
    ours, floors, ratio = (float(cells[4]) for cells in table)
    assert ratio == pytest.approx(ours / floors, rel=0.02)


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        (["--beside", "floor", "--rows", "fetch"], "no row fetch; there are one-1, "),
        (["--beside", "kfake", "--durability", "flush"], "no row has the durability flush"),
        (["--beside", "floor", "--security"], "--beside has no rows with TLS and logins"),
    ],
)
def test_what_a_broker_cannot_serve_is_refused(
    options: list[str], refusal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(options)
    assert refusal in capsys.readouterr().err
