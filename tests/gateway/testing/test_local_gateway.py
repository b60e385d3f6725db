"""The gateway for other people's tests: in a thread, on a free port, and as fixtures of pytest."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.config import ConfigError
from gateway.homes.home import StartFailed
from gateway.testing import LocalGateway
from tests.support.batches import Batch, Record
from tests.support.gateway_process import REPOSITORY
from tests.support.wire import Plain, Wire

PAGE = REPOSITORY / "docs" / "testing.md"


def produce(gateway: LocalGateway, value: bytes) -> Plain:
    """Store a record in a topic, and create the topic if there is none; return the row of the answer."""
    with Wire(gateway.bootstrap) as wire:
        topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
        wire.call("create_topics", 7, topics=[topic], timeout=10_000)
        rows = [{"index": 0, "records": Batch((Record(value=value),)).encode()}]
        request = {"acks": -1, "timeout": 5_000, "topic_data": [{"name": "t", "partition_data": rows}]}
        row: Plain = wire.call("produce", 9, request).fields["responses"][0]["partition_responses"][0]
    assert row["error_code"] == 0, row
    return row


def test_a_restart_keeps_port_and_data(tmp_path: Path) -> None:
    gateway = LocalGateway(tmp_path / "data")
    with gateway:
        first = gateway.bootstrap
        assert produce(gateway, b"one")["base_offset"] == 0
    with gateway:
        assert gateway.bootstrap == first
        assert produce(gateway, b"two")["base_offset"] == 1
        with pytest.raises(RuntimeError, match="runs already"):
            gateway.start()
    gateway.stop()


def test_two_gateways_run_at_once(tmp_path: Path) -> None:
    with LocalGateway(tmp_path / "a") as one, LocalGateway(tmp_path / "b") as other:
        assert one.bootstrap != other.bootstrap
        assert [produce(gateway, b"x")["base_offset"] for gateway in (one, other)] == [0, 0]


def test_what_is_wrong_is_raised_where_the_test_can_see_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Unknown setting num\.partition "):
        LocalGateway(tmp_path / "data", {"num.partition": "1"})
    with pytest.raises(RuntimeError, match=r"call start\(\)"):
        _ = LocalGateway(tmp_path / "data").bootstrap
    with LocalGateway(tmp_path / "data"):
        second = LocalGateway(tmp_path / "data")
        with pytest.raises(StartFailed):
            second.start()
        second.stop()


def test_the_fixtures_as_the_page_has_them(tmp_path: Path) -> None:
    plugin, example = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[:2]
    (tmp_path / "conftest.py").write_text(plugin)
    (tmp_path / "test_orders.py").write_text(example)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
