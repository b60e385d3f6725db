"""`seqgate dead-letters` on the letters that a share group of a real gateway wrote."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway_process import REPOSITORY, GatewayProcess
from tests.support.group_configs import READ_FROM_THE_START, set_group_configs
from tests.support.wire import Wire
from tests.system.commands.clients import REJECT, Reader, create_topic, next_producer_id, produce
from tests.system.commands.conftest import Outcome, seqgate

WAIT_S = 120.0
QUEUE = "dlq.orders"
LETTERS = 10
GROUP_CONFIGS = {
    **READ_FROM_THE_START,
    "errors.deadletterqueue.topic.name": QUEUE,
    "errors.deadletterqueue.copy.record.enable": "true",
}
KILLED_REPLAY = """
import os, signal, sys
from kafka import KafkaProducer
from seqgate.gateway.admin import dead_letters
from seqgate.gateway.cli import app

moment, bootstrap = sys.argv[1:]
dead_letters.LETTERS_AT_ONCE = 3
commit = KafkaProducer.commit_transaction
commits = []

def commit_or_die(producer):
    commits.append(producer)
    if len(commits) == 2 and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    commit(producer)
    if len(commits) == 2:
        os.kill(os.getpid(), signal.SIGKILL)

KafkaProducer.commit_transaction = commit_or_die
app(["dead-letters", "replay", "dlq.orders", "--yes", "--bootstrap", bootstrap])
"""
"""A replay that is killed with its second transaction, whose records are all acknowledged: before or after
its commit.
"""


def letters(gateway: GatewayProcess, command: str, *arguments: str, code: int = 0) -> Outcome:
    return seqgate("dead-letters", command, QUEUE, *arguments, "--bootstrap", gateway.bootstrap, code=code)


def await_that(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway on which the group `desk` rejected all ten records of the topic `orders`."""
    settings = {"share.coordinator.state.topic.num.partitions": "4", "offsets.topic.num.partitions": "4"}
    with GatewayProcess(tmp_path / "data", settings=settings) as process:
        create_topic(process.bootstrap, "orders", 1)
        create_topic(process.bootstrap, QUEUE, 1, {"errors.deadletterqueue.group.enable": "true"})
        set_group_configs(process.bootstrap, "desk", GROUP_CONFIGS)
        producer_id = next_producer_id(process.bootstrap)
        assert produce(process.bootstrap, "orders", 0, producer_id, 0, LETTERS) == (0, 0)
        with Wire(process.bootstrap) as wire:
            reader = Reader(wire)
            assert reader.fetch() == [(0, LETTERS - 1, 1)]
            reader.acknowledge((0, LETTERS - 1, REJECT))
        await_that(lambda: len(letters(process, "list", "--json").json["letters"]) == LETTERS)
        yield process


def values(gateway: GatewayProcess) -> list[str]:
    lines = seqgate("consume", "orders", "--bootstrap", gateway.bootstrap).stdout
    return lines.splitlines()


def killed_replay(gateway: GatewayProcess, moment: str) -> int:
    process = subprocess.run(
        [sys.executable, "-c", KILLED_REPLAY, moment, gateway.bootstrap],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
        timeout=WAIT_S,
        check=False,
    )
    return process.returncode


@pytest.mark.parametrize(("moment", "left"), [("before", 7), ("after", 4)])
def test_a_replay_that_is_killed_and_repeated_sends_each_record_once(
    gateway: GatewayProcess, moment: str, left: int
) -> None:
    sent = values(gateway)
    assert killed_replay(gateway, moment) == -signal.SIGKILL
    report = letters(gateway, "replay", "--yes", "--json").json
    assert report["replayed"] == [{"topic": "orders", "records": left}]
    assert report["already_replayed"] == LETTERS - left
    again = letters(gateway, "replay", "--yes", "--json").json  # ends the transaction of the one before
    assert (again["replayed"], again["already_replayed"]) == ([], LETTERS)
    assert values(gateway) == sent * 2
    dropped = letters(gateway, "drop", "--replayed", "--yes", "--json").json
    assert dropped["partitions"][0]["new_start_offset"] > LETTERS
    assert letters(gateway, "list", "--json").json["letters"] == []


def test_what_they_show_and_that_they_change_nothing_unasked(gateway: GatewayProcess) -> None:
    found = letters(gateway, "list", "--json", "--limit", "1").json
    written: dict[str, Any] = found["letters"][0]
    assert written.pop("timestamp") > 0
    assert written == {
        "partition": 0,
        "offset": 0,
        "source_topic": "orders",
        "source_partition": 0,
        "source_offset": 0,
        "group": "desk",
        "delivery_count": 1,
        "reason": "Offset rejected by client.",
        "key": None,
        "has_content": True,
        "has_null_header": False,
        "is_replayed": False,
    }
    shown = letters(gateway, "list", "--limit", "2").stdout
    assert "orders-0@0" in shown
    assert "orders-0@2" not in shown
    assert "10 letters, of which the oldest 2 are listed." in shown
    assert "Group desk: 10 letters, 0 replayed: Offset rejected by client." in shown
    sent = values(gateway)
    would = "10 records would be sent back to orders."
    assert would in letters(gateway, "replay", "--dry-run", "--yes").stdout
    assert would in letters(gateway, "replay", code=1).stdout
    assert letters(gateway, "replay", "--json").json["is_dry_run"] is True
    assert "10 offsets would be dropped" in letters(gateway, "drop", "--all", "--dry-run").stdout
    assert "Nothing is dropped." in letters(gateway, "drop", "--all", code=1).stdout
    assert values(gateway) == sent
    assert len(letters(gateway, "list", "--json").json["letters"]) == LETTERS
    assert "dropped from the beginning" in letters(gateway, "drop", "--all", "--yes").stdout
    assert "0 letters." in letters(gateway, "list").stdout
