"""The stores of these tests: two in the process, and S3 stores as processes. versitygw takes part where `make
peers` has built it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seqgate.gateway.cluster.objects.directory_objects import DirectoryObjects
from seqgate.gateway.cluster.objects.objects import ObjectStore
from tests.support.fault_proxy import FaultProxy
from tests.support.object_stores import MotoServer, Versitygw
from tests.support.setup_peers import versitygw_program
from tests.support.simulated_objects import Faults, SimulatedBucket, SimulatedObjects

S3_STORES = ("moto", "versitygw") if versitygw_program() else ("moto",)
Server = MotoServer | Versitygw
Open = Callable[[], ObjectStore]
_numbers = itertools.count()


@pytest.fixture(scope="session")
def moto() -> Iterator[MotoServer]:
    """One running moto; every test uses a prefix of its own."""
    with MotoServer() as server:
        yield server


@pytest.fixture(scope="session")
def versitygw() -> Iterator[Versitygw]:
    """One running versitygw; every test uses a prefix of its own."""
    with Versitygw() as server:
        yield server


@pytest.fixture(params=S3_STORES)
def server(request: pytest.FixtureRequest) -> Server:
    """A running S3 store; tests run once with each implementation."""
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def proxy(server: Server) -> Iterator[FaultProxy]:
    """A proxy before the S3 store that can fail or delay requests."""
    with FaultProxy(server.port) as running:
        yield running


@pytest.fixture
def prefix() -> str:
    """A prefix in a bucket that no other test uses."""
    return f"test/{next(_numbers)}"


@pytest.fixture(params=["simulated", "directory", *S3_STORES])
def open_store(request: pytest.FixtureRequest, tmp_path: Path, prefix: str) -> Open:
    """A function that opens one more client of each store; all clients of a test have the same objects."""
    if request.param == "simulated":
        bucket = SimulatedBucket()
        return lambda: SimulatedObjects(bucket, faults=Faults(latency_s=(0, 0.0005)))
    if request.param == "directory":
        return lambda: DirectoryObjects(tmp_path)
    server: Server = request.getfixturevalue(request.param)
    return lambda: server.objects(prefix)
