"""Fixtures for pytest, which loads this module by its entry point.

    seqgate             a broker of the whole session, in a thread of the test process
    seqgate_fresh       a broker without topics, for one test
    seqgate_cluster     a cluster of three brokers without topics, for one test
    seqgate_topic       the name of a topic of `seqgate` that no other test uses; it exists
    seqgate_bootstrap   the address of `seqgate`, for `bootstrap.servers`
    seqgate_settings    the settings of all brokers, from the ini setting of this name and --seqgate-setting

The module imports the gateway with the first broker, so that other tests start as fast as before.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from seqgate.gateway.testing import Broker, Cluster

_SETTINGS: Final = "seqgate_settings"
_BROKER: Final[pytest.StashKey[Broker]] = pytest.StashKey()
"""Where the broker of the session is found, once a test has asked for it."""
_numbers: Final = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the ini setting for the brokers' settings."""
    parser.addini(
        _SETTINGS, "Settings of Seqgate's brokers, one NAME=VALUE a line.", type="linelist", default=[]
    )
    parser.getgroup("seqgate").addoption(
        "--seqgate-setting",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="A setting of Seqgate's brokers; may be repeated.",
    )


@pytest.fixture(scope="session")
def seqgate_settings(pytestconfig: pytest.Config) -> Mapping[str, str]:
    """The settings of the brokers in addition to `seqgate.gateway.testing.SETTINGS`."""
    lines = [*pytestconfig.getini(_SETTINGS), *pytestconfig.getoption("--seqgate-setting")]
    settings = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"{line!r} must have the form NAME=VALUE, as a setting of Seqgate")
        settings[name.strip()] = value.strip()
    return settings


@pytest.fixture(scope="session")
def seqgate(seqgate_settings: Mapping[str, str], pytestconfig: pytest.Config) -> Iterator[Broker]:
    """A running broker of the whole session."""
    for broker in _running(seqgate_settings):
        pytestconfig.stash[_BROKER] = broker
        yield broker
        del pytestconfig.stash[_BROKER]


@pytest.fixture
def seqgate_fresh(seqgate_settings: Mapping[str, str]) -> Iterator[Broker]:
    """A running broker without topics."""
    yield from _running(seqgate_settings)


@pytest.fixture
def seqgate_cluster(seqgate_settings: Mapping[str, str]) -> Iterator[Cluster]:
    """A running cluster of three brokers without topics."""
    from seqgate.gateway.testing import Cluster  # noqa: PLC0415 - slow to import

    with Cluster(3, seqgate_settings) as cluster:
        yield cluster


@pytest.fixture
def seqgate_bootstrap(seqgate: Broker) -> str:
    """The address of the broker, HOST:PORT."""
    return seqgate.bootstrap


@pytest.fixture
def seqgate_topic(seqgate: Broker, request: pytest.FixtureRequest) -> str:
    """The name of a new topic with one partition."""
    legal = "".join(
        each if each.isascii() and (each.isalnum() or each in "._-") else "-" for each in request.node.name
    )
    name = f"{legal[:200]}-{next(_numbers)}"
    seqgate.create_topic(name)
    return name


@pytest.fixture(autouse=True)
def _no_faults_stay(pytestconfig: pytest.Config) -> Iterator[None]:
    """End what a test ordered at the session's broker; a suite may have its own fixture `seqgate`."""
    yield
    broker = pytestconfig.stash.get(_BROKER, None)
    if broker is not None:
        broker.faults.reset()


def _running(settings: Mapping[str, str]) -> Iterator[Broker]:
    from seqgate.gateway.testing import Broker  # noqa: PLC0415 - slow to import, and most tests use no broker

    with Broker(settings=settings) as broker:
        yield broker
