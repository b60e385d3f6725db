"""The parts that all tests share: fixed seeds, the tiers and the order of the test files, and gateways that
run as processes.

Fixtures of peers (Apache Kafka, Spark, PostgreSQL, Redis) are in the folders of their tests, so that the
tests of single rooms need no peer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import tiers
from tests.support.gateway_process import GatewayProcess
from tests.support.long_files import SharedPeers, longest_first
from tests.support.seeds import register_profiles

register_profiles()
# A Spark session here lives only seconds: the quick compiler and the serial collector halve its processor
# time.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
# Hundreds of gateways and clients import the same modules: only the first one compiles them.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

AS_THE_PEER = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.min.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
"""The settings that gateways share with the Apache Kafka that tests compare with."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier", choices=tuple(tiers.TIERS), help="run only the tests of a tier; see tests/tiers.py"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{tiers.MARK}(name): the tier of a test, where it is not that of its file"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tiers.select(config, items)
    longest_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> SharedPeers | None:
    """Schedule by files and peers, unless the command line chooses another distribution than `loadfile`."""
    return SharedPeers(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the tests of the pages did with each code block, after a run that had them."""
    reports = [report for listed in terminalreporter.stats.values() for report in listed]
    if any(getattr(report, "nodeid", "").startswith("tests/docs/test_blocks.py") for report in reports):
        from tests.docs.ways import table

        terminalreporter.section("code blocks of README.md and docs")
        terminalreporter.write_line("\n".join(table()))


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    """A running gateway for one test, on an empty data directory."""
    with GatewayProcess(tmp_path / "data") as process:
        yield process


@pytest.fixture(scope="session")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """One running gateway for all tests that need no more than their own topic and group names."""
    data_dir = tmp_path_factory.mktemp("shared") / "data"
    with GatewayProcess(data_dir, settings=AS_THE_PEER) as process:
        yield process
