"""Fixtures that every room's tests may ask for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.gateway_process import GatewayProcess


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    """A running gateway of its own for one test, on an empty data directory."""
    with GatewayProcess(tmp_path / "data") as process:
        yield process


@pytest.fixture(scope="session")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """One running gateway for all tests that only need fresh topic names."""
    with GatewayProcess(tmp_path_factory.mktemp("shared") / "data") as process:
        yield process
