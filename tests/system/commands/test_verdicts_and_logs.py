"""`seqgate verdicts` and `seqgate logs` against real gateways and clients."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.gateway_process import REPOSITORY, GatewayProcess
from tests.system.commands.clients import create_topic, produce
from tests.system.commands.conftest import seqgate
from tests.system.workers.scene import consecutive_ports, workers

GAP, OK = 45, 0


@pytest.fixture
def data(tmp_path: Path, gateway: GatewayProcess) -> Path:
    create_topic(gateway.bootstrap, "orders", 2)
    return gateway.data_dir


class TestVerdicts:
    def test_none(self, data: Path) -> None:
        said = seqgate("verdicts", "--data-dir", data).stdout
        assert (
            said == "The gateway keeps no such verdict: each batch was stored, or its verdict is too old.\n"
        )
        assert seqgate("verdicts", "--data-dir", data, "--json").json == {"verdicts": [], "kept": 10_000}

    def test_a_duplicate_and_a_gap(self, data: Path, gateway: GatewayProcess) -> None:
        for sequence, error in ((0, OK), (0, OK), (50, GAP)):
            assert produce(gateway.bootstrap, "orders", 1, 7, sequence, 5)[0] == error
        assert produce(gateway.bootstrap, "orders", 0, 8, 0, 1)[0] == OK
        newest, oldest = seqgate("verdicts", "--data-dir", data, "--json").json["verdicts"]
        assert (
            newest["outcome"],
            newest["producer_id"],
            newest["base_sequence"],
            newest["last_sequence"],
        ) == ("OUT_OF_ORDER_SEQUENCE_NUMBER", 7, 50, 54)
        assert newest["message"]
        assert (newest["client"]["client_id"], newest["base_offset"]) == ("wire", -1)
        assert (oldest["outcome"], oldest["base_offset"], oldest["number"]) == ("duplicate", 0, 1)
        table = seqgate("verdicts", "--data-dir", data, "--topic", "orders", "--partition", "1").stdout
        assert re.search(r"orders-1\s+7\s+0\s+50-54\s+-\s+OUT_OF_ORDER", table)
        assert re.search(r"orders-1\s+7\s+0\s+0-4\s+0\s+duplicate", table)
        for words, count in (
            (["--limit", "1"], 1),
            (["--producer-id", "7"], 2),
            (["--producer-id", "8"], 0),
            (["--topic", "other"], 0),
            (["--topic", "orders", "--partition", "0"], 0),
        ):
            found = seqgate("verdicts", "--data-dir", data, "--json", *words).json["verdicts"]
            assert len(found) == count, words

    def test_wrong_options(self, data: Path) -> None:
        said = seqgate("verdicts", "--data-dir", data, "--partition", "1", code=2)
        assert "--partition needs --topic" in said.stderr
        for words in (["--limit", "0"], ["--producer-id", "-1"]):
            seqgate("verdicts", "--data-dir", data, *words, code=2)
        said = seqgate("verdicts", "--data-dir", data, "--limit", "10001", code=1)
        assert "limit must be between 1 and 10000, not 10001" in said.stderr

    def test_of_a_gateway_that_does_not_run(self, tmp_path: Path) -> None:
        assert "no gateway is running" in seqgate("verdicts", "--data-dir", tmp_path, code=None).stderr


def test_a_gateway_without_a_metrics_listener_shows_what_it_counts_anyway(
    data: Path, gateway: GatewayProcess
) -> None:
    assert produce(gateway.bootstrap, "orders", 1, 7, 0, 5)[0] == OK
    for words in (["--data-dir", data], ["--bootstrap", gateway.bootstrap]):
        shown = seqgate("metrics", *words).stdout
        assert 'seqgate_connections{node_id="' in shown
        assert "seqgate_request_duration_seconds" not in shown, "nothing is timed"
    # a partition counts what was stored since it was opened, also before the first question
    shown = seqgate("metrics", "seqgate_topic_records_total", "--data-dir", data).stdout
    assert re.search(r'^seqgate_topic_records_total\{node_id="\d+",topic="orders"\} 5', shown, re.MULTILINE)


class TestLogs:
    def test_the_newest_lines(self, data: Path) -> None:
        lines = seqgate("logs", "--data-dir", data, "--json").json["lines"]
        assert any("created topic orders" in line["message"] for line in lines)
        assert [line["number"] for line in lines] == list(range(1, len(lines) + 1))
        shown = seqgate("logs", "--data-dir", data, "-n", "1").stdout.splitlines()
        assert len(shown) == 1
        assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (INFO|WARNING) \S+: ", shown[0])

    def test_json_is_one_document(self, data: Path) -> None:
        said = seqgate("logs", "--data-dir", data, "--json", "--follow", code=2)
        assert "use it without --follow" in said.stderr

    def test_follow_shows_lines_as_they_come(self, data: Path, gateway: GatewayProcess) -> None:
        with _following(data) as follower:
            assert follower.stdout is not None
            for line in follower.stdout:
                if "created topic orders" in line:
                    break
            create_topic(gateway.bootstrap, "later", 1)
            for line in follower.stdout:
                if "created topic later" in line:
                    break
            create_topic(gateway.bootstrap, "last", 1)
            for line in follower.stdout:
                assert "created topic later" not in line, "each line comes once"
                if "created topic last" in line:
                    break
            follower.send_signal(2)
            assert follower.wait(30) in (0, 1, 130)

    def test_follow_ends_with_its_gateway(self, data: Path, gateway: GatewayProcess) -> None:
        with _following(data) as follower:
            assert follower.stdout is not None
            for line in follower.stdout:
                if "created topic orders" in line:
                    break
            gateway.stop()
            rest = follower.stdout.read()
            assert follower.wait(30) == 1, rest
            assert follower.stderr is not None
            said = follower.stderr.read()
            assert "Traceback" not in said
            assert "gateway" in said
        gateway.start()

    def test_of_several_workers(self, tmp_path: Path) -> None:
        with workers(tmp_path / "data", 2, consecutive_ports(2)):
            found = seqgate("logs", "--data-dir", tmp_path / "data", "--json").json["lines"]
            times = [line["time_ms"] for line in found]
            assert times == sorted(times)
            assert len({line["number"] for line in found}) < len(found), "each worker counts its lines"
            assert {line["node_id"] for line in found} == {1, 2}
            with _following(tmp_path / "data") as follower:
                assert follower.stdout is not None
                shown = iter(follower.stdout)
                told = {next(shown).split()[3] for _ in found}
                follower.send_signal(2)
                follower.wait(60)
            assert told == {"1", "2"}


def _following(data: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "seqgate", "logs", "--follow", "--data-dir", str(data)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
