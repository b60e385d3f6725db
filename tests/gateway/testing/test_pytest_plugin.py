"""The plugin in test suites of imagined users: plain, with xdist, with pytest-asyncio, with unittest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.testing.pytest_run import run_pytest

PRODUCE = """
from kafka import KafkaProducer

def produce(bootstrap, topic, *values):
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for value in values:
        producer.send(topic, value).get(timeout=20)
    producer.close()
"""
PLAIN = """
import pytest
from seqgate.testing import Broker
from producing import produce

def test_one(seqgate, seqgate_topic):
    assert isinstance(seqgate, Broker)
    produce(seqgate.bootstrap, seqgate_topic, b"a", b"b")
    seqgate.assert_exactly_once(seqgate_topic, [b"a", b"b"])

@pytest.mark.parametrize("name", ["with space", "ümläut/slash", "x" * 300])
def test_topics_are_new_and_legal(seqgate, seqgate_topic, name):
    assert seqgate.records(seqgate_topic) == []

addresses = set()

@pytest.mark.parametrize("number", range(2))
def test_the_session_has_one_broker(seqgate, seqgate_bootstrap, number):
    addresses.add(seqgate_bootstrap)
    assert len(addresses) == 1

@pytest.mark.parametrize("number", range(2))
def test_a_fresh_broker_is_empty(seqgate_fresh, number):
    assert seqgate_fresh.topics() == []
    seqgate_fresh.create_topic("t")

def test_a_fault_is_ordered_and_left(seqgate):
    seqgate.faults.close(times=99)

def test_the_next_test_does_not_meet_it(seqgate, seqgate_topic):
    produce(seqgate.bootstrap, seqgate_topic, b"x")

def test_without_a_broker():
    pass
"""
FILES = {"producing.py": PRODUCE, "test_plain.py": PLAIN}


def test_the_fixtures(tmp_path: Path) -> None:
    outcome, output = run_pytest(tmp_path, FILES)
    assert outcome == {"passed": 11}, output


@pytest.mark.tier("all")
def test_the_entry_point(tmp_path: Path) -> None:
    outcome, output = run_pytest(tmp_path, FILES, installed=True)
    assert outcome == {"passed": 11}, output


@pytest.mark.tier("all")
def test_with_xdist_each_worker_has_a_broker(tmp_path: Path) -> None:
    test = """
import pytest

@pytest.mark.parametrize("number", range(6))
def test_it(seqgate, seqgate_topic, number, tmp_path_factory):
    assert seqgate.records(seqgate_topic) == []
    (tmp_path_factory.getbasetemp().parent / seqgate.bootstrap.rpartition(":")[2]).touch()
"""
    outcome, output = run_pytest(
        tmp_path, {"test_it.py": test}, ["-n", "2", "--dist", "load", f"--basetemp={tmp_path / 'base'}"]
    )
    assert outcome == {"passed": 6}, output
    ports = [path for path in (tmp_path / "base").iterdir() if path.name.isdecimal()]
    assert len(ports) == 2, output


@pytest.mark.tier("all")
def test_with_pytest_asyncio(tmp_path: Path) -> None:
    test = """
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

async def test_it(seqgate, seqgate_topic):
    async with AIOKafkaProducer(bootstrap_servers=seqgate.bootstrap) as producer:
        await producer.send_and_wait(seqgate_topic, b"one")
    async with AIOKafkaConsumer(
        seqgate_topic, bootstrap_servers=seqgate.bootstrap, auto_offset_reset="earliest", group_id="g"
    ) as consumer:
        assert (await consumer.getone()).value == b"one"
"""
    outcome, output = run_pytest(tmp_path, {"test_it.py": test}, ["-o", "asyncio_mode=auto"])
    assert outcome == {"passed": 1}, output


@pytest.mark.tier("all")
def test_with_unittest(tmp_path: Path) -> None:
    test = """
import unittest
import pytest
from seqgate.testing import Broker
from producing import produce

class WithFixture(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def take(self, seqgate, seqgate_topic):
        self.broker, self.topic = seqgate, seqgate_topic

    def test_it(self):
        produce(self.broker.bootstrap, self.topic, b"x")
        self.broker.assert_exactly_once(self.topic, [b"x"])

class WithoutPytest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.broker = cls.enterClassContext(Broker())

    def setUp(self):
        self.broker.reset()

    def test_one(self):
        self.broker.create_topic("t")

    def test_two(self):
        self.assertEqual(self.broker.topics(), [])
        self.broker.create_topic("t")
"""
    files = {"producing.py": PRODUCE, "test_it.py": test}
    outcome, output = run_pytest(tmp_path, files)
    assert outcome == {"passed": 3}, output


SETTING = """
def test_it(seqgate, seqgate_fresh):
    for broker in (seqgate, seqgate_fresh):
        broker.create_topic("t", partitions=-1)
        with broker.faults.partition_offline("t", {last}):
            pass
"""


@pytest.mark.tier("all")
def test_settings_of_the_ini_file_and_the_command_line(tmp_path: Path) -> None:
    ini = "[pytest]\nseqgate_settings =\n    num.partitions = 3\n    log.retention.ms = 7\n"
    files = {"pytest.ini": ini, "test_it.py": SETTING.format(last=2)}
    outcome, output = run_pytest(tmp_path, files)
    assert outcome == {"passed": 1}, output
    outcome, output = run_pytest(
        tmp_path, {"test_it.py": SETTING.format(last=4)}, ["--seqgate-setting", "num.partitions=5"]
    )
    assert outcome == {"passed": 1}, output


@pytest.mark.tier("all")
def test_wrong_settings_are_one_sentence(tmp_path: Path) -> None:
    files = {"test_it.py": "def test_it(seqgate):\n    pass\n"}
    outcome, output = run_pytest(tmp_path, files, ["--seqgate-setting", "num.partitions"])
    assert outcome == {"error": 1}
    assert "'num.partitions' must have the form NAME=VALUE" in output
    outcome, output = run_pytest(tmp_path, files, ["--seqgate-setting", "num.partition=1"])
    assert outcome == {"error": 1}
    assert "Unknown setting num.partition" in output


@pytest.mark.tier("all")
def test_a_cluster_for_one_test(tmp_path: Path) -> None:
    test = """
import pytest

@pytest.mark.parametrize("number", range(2))
def test_it(seqgate_cluster, number):
    assert len(seqgate_cluster.brokers) == 3
    assert seqgate_cluster.topics() == []
    seqgate_cluster.create_topic("t", partitions=3)
"""
    outcome, output = run_pytest(tmp_path, {"test_it.py": test})
    assert outcome == {"passed": 2}, output


def test_a_suite_that_uses_no_broker_imports_none(tmp_path: Path) -> None:
    test = """
import sys

def test_it():
    loaded = [name for name in sys.modules if name.partition(".")[0] in ("seqgate", "kio", "kafka")]
    assert sorted(loaded) == ["seqgate", "seqgate.core", "seqgate.gateway", "seqgate.gateway.pytest_plugin"]
"""
    outcome, output = run_pytest(tmp_path, {"test_it.py": test})
    assert outcome == {"passed": 1}, output


OWN = {
    "gateway/__init__.py": "NAME = 'mine'\n",
    "log.py": "NAME = 'mine'\n",
    "metadata.py": "NAME = 'mine'\n",
    "tests/__init__.py": "",
    "tests/test_it.py": """
import gateway, log, metadata

def test_it(seqgate, seqgate_topic):
    assert {gateway.NAME, log.NAME, metadata.NAME} == {"mine"}
    assert seqgate.records(seqgate_topic) == []
""",
}


@pytest.mark.tier("all")
def test_a_project_may_have_packages_with_the_names_of_folders_here(tmp_path: Path) -> None:
    outcome, output = run_pytest(tmp_path, OWN, installed=True)
    assert outcome == {"passed": 1}, output
