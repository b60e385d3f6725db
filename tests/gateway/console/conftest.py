"""Consoles for a running gateway."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from seqgate.gateway.console.asking import connections
from seqgate.gateway.console.asking.gateways import GatewayAsker, Replies
from tests.support.console_client import ConsoleClient, console_client
from tests.support.gateway_process import GatewayProcess, free_port

NEVER_MS = str(2**31 - 1)


@pytest.fixture(autouse=True)
def fresh_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consoles ask for each page anew: a page shows what a test has just changed without the console."""
    monkeypatch.setattr(connections, "TIMES_LONGER", 0)


@pytest.fixture
def foreign_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the brokers tell nothing of themselves, as those of Apache Kafka, so that --metrics counts."""
    monkeypatch.setattr(GatewayAsker, "ask", lambda *_: Replies(of=1))


@pytest.fixture(scope="module")
def console(shared_gateway: GatewayProcess) -> Iterator[ConsoleClient]:
    """A console for the gateway that all tests share, without --metrics."""
    with console_client(shared_gateway.bootstrap) as client:
        yield client


@pytest.fixture(scope="module")
def measured_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with a metrics listener, on which no transaction times out and transactions may hang."""
    settings = {
        "seqgate.metrics.listener": f"127.0.0.1:{free_port()}",
        "seqgate.producer.id.block.size": "20",
        "seqgate.backlog.check.interval.ms": "20",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": NEVER_MS,
        # accepts a transactional batch in a partition that belongs to no transaction
        "transaction.partition.verification.enable": "false",
    }
    with GatewayProcess(tmp_path_factory.mktemp("measured") / "data", settings=settings) as process:
        yield process


@pytest.fixture(scope="module")
def measured(measured_gateway: GatewayProcess) -> Iterator[ConsoleClient]:
    """A console with --metrics."""
    url = f"http://{measured_gateway.settings['seqgate.metrics.listener']}"
    with console_client(measured_gateway.bootstrap, metrics_url=url) as client:
        yield client


@pytest.fixture(scope="module")
def unmeasured(measured_gateway: GatewayProcess) -> Iterator[ConsoleClient]:
    """A console for the same gateway without --metrics."""
    with console_client(measured_gateway.bootstrap) as client:
        yield client
