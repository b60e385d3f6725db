"""The names that a shell offers, of a gateway and of Apache Kafka."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.compat.commands.conftest import Peer
from tests.support.gateway_process import REPOSITORY, SOURCES, GatewayProcess, free_port

PATIENCE_S = 240.0
Fresh = Callable[[str], str]


def offered(*words: str, cwd: Path = REPOSITORY) -> list[str]:
    """Ask until bash is offered something: it waits a second for a broker, and a busy machine needs longer."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not (names := offered_at_once(*words, cwd=cwd)):
        assert time.monotonic() < deadline_s, f"nothing is offered for {words}"
    return names


def offered_at_once(*words: str, cwd: Path = REPOSITORY) -> list[str]:
    """Return what bash is offered for the last of these words after `seqgate`."""
    line = ["seqgate", *words]
    environment = {
        **os.environ,
        "_SEQGATE_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(line),
        "COMP_CWORD": str(len(line) - 1),
        "PYTHONPATH": str(SOURCES),
    }
    done = subprocess.run(
        [sys.executable, "-m", "seqgate"],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.fixture
def topic(peer: Peer, fresh: Fresh) -> str:
    name = fresh("shell.orders")
    peer.run("topics", "create", name)
    return name


def test_topics(peer: Peer, topic: str) -> None:
    beginning = topic[:-4]
    assert offered("topics", "describe", "--bootstrap", peer.bootstrap, beginning) == [topic]
    assert topic in offered("consume", "--bootstrap", peer.bootstrap, "")
    assert offered("configs", "get", "--bootstrap", peer.bootstrap, "topic", beginning) == [topic]
    assert offered_at_once("topics", "create", "--bootstrap", peer.bootstrap, beginning) == []
    assert offered_at_once("topics", "describe", "--bootstrap", peer.bootstrap, "nothing-like-it") == []


def test_groups(peer: Peer, topic: str, fresh: Fresh) -> None:
    group = fresh("shell.billing")
    consumer = Consumer({"bootstrap.servers": peer.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    consumer.close()
    beginning = group[:-4]
    assert offered("groups", "describe", "--bootstrap", peer.bootstrap, beginning) == [group]
    assert offered("configs", "set", "--bootstrap", peer.bootstrap, "group", beginning) == [group]


def test_brokers(peer: Peer) -> None:
    assert offered("configs", "get", "--bootstrap", peer.bootstrap, "broker", "") == ["1", "default"]


def test_the_gateway_on_the_data_directory(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "data"):
        words = ("backlog", "--data-dir", str(tmp_path / "data"))
        assert offered_at_once(*words, "") == []
        assert "__consumer_offsets" not in offered_at_once(*words, "")


@pytest.mark.parametrize("where", ["nobody", "malformed", "directory"])
def test_silent_when_nothing_answers(tmp_path: Path, where: str) -> None:
    given = {
        "nobody": ("--bootstrap", f"127.0.0.1:{free_port()}"),
        "malformed": ("--bootstrap", "here"),
        "directory": ("--data-dir", str(tmp_path / "none")),
    }[where]
    assert offered_at_once("topics", "describe", *given, "o", cwd=tmp_path) == []
