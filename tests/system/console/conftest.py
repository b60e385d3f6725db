"""Consoles in processes of their own, and a browser for each file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.support.chromium import Watched, chromium, watched
from tests.support.console_process import console_process
from tests.support.gateway_process import GatewayProcess, free_port

NEVER_MS = str(2**31 - 1)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for a file of tests."""
    with chromium() as program:
        yield program


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway of this file's own, so that its pages show nothing else."""
    with GatewayProcess(tmp_path_factory.mktemp("console") / "data") as process:
        yield process


@pytest.fixture(scope="module")
def base(gateway: GatewayProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a console for the gateway, without --metrics."""
    with console_process(tmp_path_factory.mktemp("process"), gateway.bootstrap) as address:
        yield address


@pytest.fixture(scope="module")
def measured_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway of this file's own with a metrics listener, on which no transaction times out and
    transactions may hang.
    """
    settings = {
        "seqgate.metrics.listener": f"127.0.0.1:{free_port()}",
        "seqgate.producer.id.block.size": "20",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": NEVER_MS,
        "transaction.partition.verification.enable": "false",
    }
    with GatewayProcess(tmp_path_factory.mktemp("measured") / "data", settings=settings) as process:
        yield process


@pytest.fixture(scope="module")
def measured(measured_gateway: GatewayProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a console with --metrics."""
    url = f"http://{measured_gateway.settings['seqgate.metrics.listener']}"
    folder = tmp_path_factory.mktemp("measured-process")
    with console_process(folder, measured_gateway.bootstrap, "--metrics", url) as address:
        yield address


@pytest.fixture
def window(browser: Browser, base: str) -> Iterator[Watched]:
    """A window of the browser, with an empty profile."""
    with watched(browser, base) as page:
        yield page
