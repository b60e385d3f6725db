"""Data that earlier releases wrote opens unchanged in this release, and the gateway continues from it."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from tests.support.gateway_process import REPOSITORY, GatewayProcess, free_port
from tests.tiers import in_tiers
from tests.upgrade.make_fixture import FIXTURES, pack, write
from tests.upgrade.manifest import Manifest
from tests.upgrade.opening import OPENING, Opened, go_on_over_a_restart

NAMES = sorted(path.stem for path in FIXTURES.glob("*.json"))
SMALL_BYTES = 50_000


def opening(data_dir: Path, logins: str) -> GatewayProcess:
    """Return a gateway on a fixture's data, with a listener on which users log in."""
    return GatewayProcess(data_dir, settings=OPENING, also_listen=[f"SASL_PLAINTEXT://{logins}"])


def test_every_release_has_both_fixtures() -> None:
    assert len(NAMES) >= 8
    assert {name.rpartition("-")[2] for name in NAMES} == {"stopped", "killed"}
    archives = {path.name.removesuffix(".tar.gz"): path for path in FIXTURES.glob("*.tar.gz")}
    assert sorted(archives) == NAMES
    assert all(path.stat().st_size <= SMALL_BYTES for path in archives.values())


def test_this_release_can_add_its_own(tmp_path: Path) -> None:
    """The command that makes a fixture works, and this release opens the fixture."""
    manifest = write(REPOSITORY, tmp_path / "made", "this", "killed")
    manifest.write(tmp_path / "manifest.json")
    with tarfile.open(fileobj=io.BytesIO(pack(tmp_path / "made"))) as archive:
        archive.extractall(tmp_path / "data", filter="data")
    known = Manifest.read(FIXTURES / f"{max(NAMES)}.json")
    assert known.records.keys() <= manifest.records.keys()
    assert known.offsets.keys() <= manifest.offsets.keys()
    logins = f"127.0.0.1:{free_port()}"
    with opening(tmp_path / "data", logins) as gateway:
        opened = Opened(gateway.bootstrap, logins, Manifest.read(tmp_path / "manifest.json"))
        opened.compare_stored()
        opened.retry_batches()
        opened.share()
        opened.close()


@pytest.mark.parametrize("name", in_tiers(NAMES, test=NAMES[-2:]))
def test_opens_exact_and_goes_on(name: str, tmp_path: Path) -> None:
    manifest = Manifest.read(FIXTURES / f"{name}.json")
    with tarfile.open(FIXTURES / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path / "data", filter="data")
    logins = f"127.0.0.1:{free_port()}"
    gateway = opening(tmp_path / "data", logins)
    with gateway:
        go_on_over_a_restart(gateway, logins, manifest)
    told = gateway.stderr_text()
    assert "Traceback" not in told
    assert " ERROR " not in told
