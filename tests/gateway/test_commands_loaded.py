"""A gateway loads what answers commands soon after its start, so that an upgrade of the package under it
changes none of it. Before that it loads only what a start needs, and never a client of Kafka. A command loads
no other command, and neither the gateway nor a client of Kafka before it runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from seqgate.gateway.cli import COMMANDS
from seqgate.gateway.testing import Broker
from tests.support.gateway_process import AS_INSTALLED

SCRIPT = """
import dataclasses, os, signal, sys
from seqgate.gateway import running
from seqgate.gateway.config import load_config

MODULE = "seqgate.gateway.admin.operations"
NEEDLESS = {"argparse", "email", "importlib.metadata", "zipfile"}
assert MODULE not in sys.modules, "a start needs no command"
running.COMMANDS_LOADED_AFTER_S = 0.0
load_commands = running.load_commands

def load_and_stop():
    print("needless:", sorted(NEEDLESS & set(sys.modules)))
    defined = [
        value
        for name, module in sys.modules.items() if name.startswith("seqgate.")
        for value in vars(module).values() if dataclasses.is_dataclass(value) and value.__module__ == name
    ]
    print(len(sys.modules), len(defined))
    load_commands()
    assert MODULE in sys.modules
    assert "kafka" not in sys.modules, "a gateway needs no client of Kafka"
    print("loaded", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

running.load_commands = load_and_stop
settings = [f"log.dirs={sys.argv[1]}", "listeners=PLAINTEXT://127.0.0.1:0"]
running.run(load_config(overrides=settings), lambda _: None)
"""


COMMAND = """
import sys
from seqgate.gateway.entry import main

sys.argv[0] = "seqgate"
try:
    main()
except SystemExit:
    pass
print(len(sys.modules), *sorted(name for name in sys.modules if name.startswith("seqgate.gateway.")))
"""
EACH_COMMAND = """
import sys
from seqgate.gateway.cli import COMMANDS, found

for name in COMMANDS:
    found(name)
print(*sys.modules)
"""
NOT_BEFORE_IT_RUNS = {
    "asyncio",
    "kafka",
    "kio",
    "rich",
    "seqgate.gateway.coordinator",
    "seqgate.gateway.handlers",
    "seqgate.gateway.runtime",
    "seqgate.log",
    "typer",
    "uvloop",
}
"""What a command imports inside a function, if ever."""
MOST_MODULES = {
    "serve": 566,
    "--version": 48,
    "--help": 290,
    "help security": 130,
    "topics list --help": 302,
    "status --help": 308,
    "status --data-dir /none": 150,
    "acls list --bootstrap 127.0.0.1:1": 194,
    "acls list --bootstrap GATEWAY": 198,
    "topics list --bootstrap GATEWAY": 204,
    "topics create new --bootstrap GATEWAY": 208,
    "topics describe orders --bootstrap GATEWAY": 213,
    "configs get topic orders --bootstrap GATEWAY": 208,
    "quotas list --bootstrap GATEWAY": 204,
    "users list --bootstrap GATEWAY": 217,
    "cluster gateways --bootstrap GATEWAY": 213,
    "status --bootstrap GATEWAY": 227,
    "groups list --bootstrap GATEWAY": 235,
    "groups describe readers --bootstrap GATEWAY": 236,
    "transactions list --bootstrap GATEWAY": 226,
    "transactions find-hanging --bootstrap GATEWAY": 231,
    "producers --bootstrap GATEWAY": 209,
    "produce orders --bootstrap GATEWAY": 333,
    "consume orders --bootstrap GATEWAY": 338,
}
"""Modules that each may load, those of Python and of all packages together: what there is today, and little
more. A start takes its time for its modules, so look for an import that can come later before you raise a
number.
"""
MORE_OF_PYTHON = {11: 0, 12: 7, 13: 7}.get(sys.version_info.minor, 15)
"""Modules that Python itself loads more for the same imports."""
WITH_ANSWERS = {"status": "names producers repair", "topics describe": "configs", "transactions": "producers"}
"""The subjects whose answers or rows a command needs, by the words that it begins with."""
MOST_DATACLASSES = 15
"""Dataclasses that a start may define. Each takes a millisecond; a struct of msgspec takes none."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Broker() as broker:
        broker.create_topic("orders")
        place = TopicPartition("orders", 0)
        with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id="readers")) as consumer:
            consumer.assign([place])
            consumer.commit({place: OffsetAndMetadata(0, "", -1)})
        with closing(KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="t")) as producer:
            producer.init_transactions()
        yield broker.bootstrap


def run(*words: str) -> list[str]:
    """Return the lines that a new Python prints for `-c` and these words, in an environment as a user has it."""
    done = subprocess.run(
        [sys.executable, "-c", *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(AS_INSTALLED), *sys.path])},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_what_answers_commands_is_loaded_before_the_first_one(tmp_path: Path) -> None:
    *_, needless, counts, loaded = run(SCRIPT, str(tmp_path))
    modules, defined = counts.split()
    assert needless == "needless: []", "they belong to the package of CRC-32C"
    assert int(modules) <= MOST_MODULES["serve"] + MORE_OF_PYTHON
    assert int(defined) <= MOST_DATACLASSES
    assert loaded == "loaded"


@pytest.mark.parametrize("words", [words for words in MOST_MODULES if words not in {"serve", "--help"}])
def test_a_command_loads_no_other(words: str, address: str) -> None:
    *_, last = run(COMMAND, *words.replace("GATEWAY", address).split())
    count, *loaded = last.split()
    assert int(count) <= MOST_MODULES[words] + MORE_OF_PYTHON
    commands = {name for name, (place, _) in COMMANDS.items() if f"seqgate.gateway.{place}" in loaded}
    with_it = {
        also
        for start, subjects in WITH_ANSWERS.items()
        if words.startswith(start)
        for also in subjects.split()
    }
    assert commands == {words.split(maxsplit=1)[0], *with_it} - {"--version"}


def test_a_command_imports_no_gateway_before_it_runs() -> None:
    *_, loaded = run(EACH_COMMAND)
    assert NOT_BEFORE_IT_RUNS.intersection(loaded.split()) == set()


@pytest.mark.parametrize("words", [[], ["--help"], ["topik"]])
def test_without_a_command_there_are_all_of_them(words: list[str]) -> None:
    *_, last = run(COMMAND, *words)
    count, *loaded = last.split()
    assert words == ["topik"] or int(count) <= MOST_MODULES["--help"] + MORE_OF_PYTHON
    assert {f"seqgate.gateway.{COMMANDS[name][0]}" for name in ("topics", "faults")} <= set(loaded)
