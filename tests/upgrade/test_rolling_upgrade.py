"""Three gateways of the release before snapshots of the metadata are replaced by this one, one after the
other, under load.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from seqgate.gateway.backends.bucket_start import image_of
from seqgate.gateway.cluster.metadata.shared_log import read_metadata
from seqgate.gateway.cluster.objects.directory_objects import DirectoryObjects
from seqgate.gateway.cluster.wal.sessions import SharedLogContent
from tests.faults.processes.gateways import TRANSACTIONS, Transactions
from tests.support.gateway_cluster import GatewayCluster, Writer, await_true, check
from tests.support.gateway_process import REPOSITORY, GatewayProcess
from tests.upgrade.earlier import sources_of

BEFORE_SNAPSHOTS: Final = "04c0f5b57c49b9e8e68dacc45917cc0ec79ab0ff"
NEW_SETTINGS: Final = {
    "seqgate.cluster.metadata.snapshot.changes": "4",
    "seqgate.cluster.metadata.snapshot.age.ms": "1000",
}
LEASE_MS: Final = "6000"
"""Long enough that other tests on the same cores do not make a gateway look dead."""
PATIENCE_S: Final = 120.0


@pytest.fixture(scope="module")
def earlier_release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The sources of the earlier release, out of the history of the repository."""
    place = tmp_path_factory.mktemp("earlier-release")
    yield sources_of(BEFORE_SNAPSHOTS, place / "sources")
    shutil.rmtree(place)


def metadata(cluster: GatewayCluster) -> SharedLogContent:
    async def read() -> SharedLogContent:
        return await read_metadata(DirectoryObjects(cluster.path / "bucket"))

    return asyncio.run(read())


def version(cluster: GatewayCluster) -> int:
    return image_of(metadata(cluster)).brokers.cluster_version


def places(cluster: GatewayCluster) -> set[int]:
    return {int(path.name) for path in (cluster.path / "bucket" / "meta").iterdir() if path.name.isdigit()}


def refused(cluster: GatewayCluster, release: Path) -> str:
    """Start a gateway of the earlier release, which must end; return what it wrote."""
    late = GatewayProcess(cluster.path / "late", settings=cluster.settings)
    late.sources = release
    with pytest.raises(AssertionError, match="the gateway did not start"):
        late.start()
    shutil.rmtree(late.data_dir, ignore_errors=True)
    text = late.stderr_text()
    late.stderr_path.unlink()
    return text


def test_gateways_are_replaced_one_after_the_other(tmp_path: Path, earlier_release: Path) -> None:
    cluster = GatewayCluster(tmp_path, 3, {"seqgate.cluster.lease.ms": LEASE_MS})
    for gateway in cluster.gateways:
        gateway.sources = earlier_release
    with cluster:
        cluster.create()
        cluster.create(TRANSACTIONS)
        transactions = Transactions(cluster.bootstrap)
        transactions.start()
        with Writer(cluster.bootstrap) as writer:
            for gateway in cluster.gateways:
                _await_load(writer, transactions)
                assert version(cluster) == 3
                gateway.sources = REPOSITORY
                gateway.settings |= NEW_SETTINGS
                gateway.restart()
                await_true(lambda: len(cluster.brokers()) == 3, "three gateways are live", PATIENCE_S)
            assert version(cluster) == 4
            _await_load(writer, transactions)

            # The first session that writes the new version is where an earlier release stops reading. The log
            # is shortened behind it.
            text = "A later release has used the bucket: run that release"
            assert text in refused(cluster, earlier_release)
            kept_end = metadata(cluster).kept_end
            assert kept_end is not None
            for number in range(16):
                cluster.create(f"more-{number}", 1)
            await_true(lambda: kept_end not in places(cluster), "the log is shortened", PATIENCE_S)
            assert set(range(kept_end)) <= places(cluster)
            assert text in refused(cluster, earlier_release)

            lost = cluster.gateways[1]
            lost.stop()
            shutil.rmtree(lost.data_dir)
            lost.start()
            await_true(lambda: len(cluster.brokers()) == 3, "three gateways are live", PATIENCE_S)
            _await_load(writer, transactions)
        transactions.stop()
        check(writer, cluster.bootstrap)
        transactions.check(cluster.bootstrap)
    assert (transactions.aborted, transactions.undecided) == (0, set())


def _await_load(writer: Writer, transactions: Transactions) -> None:
    writer.await_more()
    begun = len(transactions.committed)
    await_true(
        lambda: len(transactions.committed) > begun + 2, "further transactions are committed", PATIENCE_S
    )
