"""A bucket in an S3 store is backed up while its gateway runs, and restored under another prefix."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.gateway_process import GatewayProcess
from tests.support.object_stores import ACCESS_KEY, BUCKET, SECRET_KEY, MotoServer, Versitygw
from tests.support.setup_peers import versitygw_program
from tests.system.cluster.test_lost_disk import Acknowledged, create, produce, read_all
from tests.system.commands.conftest import seqgate

COUNT = 1_000
KEYS = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
ORIGINAL, RESTORED = f"s3://{BUCKET}/original", f"s3://{BUCKET}/restored"


@pytest.fixture(params=[MotoServer, Versitygw] if versitygw_program() else [MotoServer])
def endpoint(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with request.param() as store:
        yield store.endpoint


def gateway_over(address: str, endpoint: str, cache: Path) -> GatewayProcess:
    settings = {"seqgate.cluster": address, "seqgate.cluster.endpoint": endpoint}
    return GatewayProcess(cache, settings=settings, environment=KEYS)


def test_a_backup_of_a_bucket_is_restored_beside_it(tmp_path: Path, endpoint: str) -> None:
    there = ("--set", f"seqgate.cluster.endpoint={endpoint}")
    acknowledged = Acknowledged()
    with gateway_over(ORIGINAL, endpoint, tmp_path / "cache") as gateway:
        create(gateway, "flights")
        produce(gateway, "flights", 0, COUNT, acknowledged)
        backups = tmp_path / "backups"
        # The gateway is asked over its control socket.
        made = ("backup", "create", backups, "--cluster", ORIGINAL, *there, "--data-dir", gateway.data_dir)
        assert seqgate(*made, "--json").json["backup"]["is_live"]
        told = seqgate("backup", "create", backups, "--data-dir", gateway.data_dir, code=1).stderr
        assert "name the bucket with --cluster ADDRESS" in told
    assert "is sound" in seqgate("backup", "verify", backups).stdout
    # Objects of a backup are a bucket of their own for those who look.
    (backup,) = backups.glob("2*")
    assert (
        seqgate("cluster", "verify", "--cluster", f"file://{backup / 'data'}", "--json").json["damaged"] == []
    )
    told = seqgate("backup", "restore", backups, "--cluster", RESTORED, *there).stdout
    assert f"Start it: seqgate serve --cluster {RESTORED}" in told
    assert seqgate("cluster", "verify", "--cluster", RESTORED, *there, "--json").json["damaged"] == []
    seqgate("backup", "restore", backups, "--cluster", ORIGINAL, *there, code=1)
    seqgate("backup", "restore", backups, tmp_path / "data", code=1)
    with gateway_over(RESTORED, endpoint, tmp_path / "new-cache") as restored:
        assert read_all(restored, "flights", COUNT) == acknowledged.records
