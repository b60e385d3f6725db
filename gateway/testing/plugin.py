"""Fixtures for pytest: name this module in the `pytest_plugins` of a conftest.py.

seqgate             a running LocalGateway, empty at the start of each test
seqgate_bootstrap   its address, for `bootstrap.servers`
seqgate_settings    its settings, empty here; override the fixture to set some
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from gateway.testing import LocalGateway


@pytest.fixture
def seqgate_settings() -> Mapping[str, str]:
    """The settings of the gateway in addition to `gateway.testing.SETTINGS`."""
    return {}


@pytest.fixture
def seqgate(
    tmp_path_factory: pytest.TempPathFactory, seqgate_settings: Mapping[str, str]
) -> Iterator[LocalGateway]:
    """A running gateway on an empty data directory."""
    with LocalGateway(tmp_path_factory.mktemp("seqgate") / "data", seqgate_settings) as gateway:
        yield gateway


@pytest.fixture
def seqgate_bootstrap(seqgate: LocalGateway) -> str:
    """The address of the gateway, HOST:PORT."""
    return seqgate.bootstrap
