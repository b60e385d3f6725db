"""Data that the installed wheel of the previous release wrote opens in this one, and the way back is as
docs/durability.md says.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from seqgate.log.files.sparse_disk import DIRECTORY_VERSION, WORKERS_VERSION
from tests.release.building import git
from tests.support.gateway_process import REPOSITORY, GatewayProcess, free_port
from tests.upgrade.earlier import PREVIOUS, Earlier, install_earlier
from tests.upgrade.make_fixture import write
from tests.upgrade.manifest import Manifest
from tests.upgrade.opening import OPENING, go_on_over_a_restart

START_S = 60.0


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Earlier:
    """The previous release, installed from its wheel."""
    return install_earlier(PREVIOUS, tmp_path_factory.mktemp("previous"))


def gateway_of(release: Earlier | None, data_dir: Path, logins: str) -> GatewayProcess:
    """Return a gateway of a release, or of this one, on a data directory."""
    gateway = GatewayProcess(data_dir, settings=OPENING, also_listen=[f"SASL_PLAINTEXT://{logins}"])
    if release is not None:
        gateway.sources = release.installed.path
        gateway.python = release.installed.python
    return gateway


def use(release: Earlier | None, data_dir: Path, manifest: Manifest) -> str:
    """Compare everything with the manifest, go on, and compare again after a restart; return the log."""
    logins = f"127.0.0.1:{free_port()}"
    with gateway_of(release, data_dir, logins) as gateway:
        go_on_over_a_restart(gateway, logins, manifest)
    return gateway.stderr_text()


def test_the_previous_release_is_one_that_users_have() -> None:
    """It lies before this release, and is not this release itself."""
    assert git(REPOSITORY, "merge-base", PREVIOUS, "HEAD").startswith(PREVIOUS)
    assert git(REPOSITORY, "rev-list", f"{PREVIOUS}..HEAD") != ""


@pytest.mark.parametrize("ended", ["stopped", "killed"])
def test_what_it_wrote_is_all_there_and_goes_on(previous: Earlier, ended: str, tmp_path: Path) -> None:
    installed = previous.installed
    manifest = write(
        installed.path, tmp_path / "data", PREVIOUS, ended, page=previous.page, python=installed.python
    )
    assert manifest.batches
    assert manifest.offsets
    assert manifest.transactions
    told = use(None, tmp_path / "data", manifest)
    assert "Traceback" not in told
    assert " ERROR " not in told


def test_it_opens_what_this_release_wrote_or_refuses_it_unchanged(previous: Earlier, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    manifest = write(REPOSITORY, data_dir, "this", "stopped")
    if supported(previous) >= DIRECTORY_VERSION:
        assert "Traceback" not in use(previous, data_dir, manifest)
        return
    before = {path: path.read_bytes() for path in data_dir.rglob("*") if path.is_file()}
    words = ("serve", "--listen", "127.0.0.1:0", "--data-dir", data_dir)
    with previous.installed.start(*words, cwd=tmp_path, stderr=subprocess.PIPE) as refusing:
        output, told = refusing.communicate(timeout=START_S)
    assert (refusing.returncode, output) == (1, "")
    assert f"meta.properties has version {DIRECTORY_VERSION}" in told
    assert {path: path.read_bytes() for path in data_dir.rglob("*") if path.is_file()} == before


def supported(release: Earlier) -> int:
    """Return the newest version of a data directory that a release reads without workers; this release's own
    must not be lower.
    """
    code = """
try:
    from seqgate.log.files.sparse_disk import DIRECTORY_VERSION as version
except ImportError:  # of a release with packages of its own at the top
    from log.files.versions import DIRECTORY_VERSION as version
print(version)
"""
    done = subprocess.run(
        [release.installed.python, "-c", code],
        cwd=release.installed.path,
        capture_output=True,
        text=True,
        check=True,
    )
    version = int(done.stdout)
    assert version <= DIRECTORY_VERSION < WORKERS_VERSION
    return version
