"""Which cluster or gateway a command asks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from seqgate.gateway.admin import which_cluster
from seqgate.gateway.admin.request import ControlError, NotRunning
from seqgate.gateway.config import BY_NAME, load_config


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SEQGATE_")]:
        monkeypatch.delenv(name)


def test_the_data_directory_is_that_of_the_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "seqgate.toml"
    file.write_text('"log.dirs" = "elsewhere"')
    assert BY_NAME["log.dirs"].default == which_cluster.DATA_DIRECTORY
    assert which_cluster.data_directory(None, None) == Path("data")
    assert (
        which_cluster.data_directory(None, Path("mine"))
        == which_cluster.data_directory(file, Path("mine"))
        == Path("mine")
    )
    assert which_cluster.data_directory(file, None) == Path("elsewhere")
    with pytest.raises(ControlError, match="exactly one data directory"):
        which_cluster.data_directory(None, Path("a,b"))
    monkeypatch.setenv("SEQGATE_LOG_DIRS", "by the environment")
    assert which_cluster.data_directory(None, None) == Path("by the environment")
    monkeypatch.setenv("SEQGATE_NODE_ID", "x")
    with pytest.raises(ControlError, match=r"node\.id can't be 'x'"):
        which_cluster.data_directory(None, None)


def test_the_environment_names_the_cluster_where_no_option_names_a_gateway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert which_cluster.bootstrap_of(None, None, None) is None
    monkeypatch.setenv(which_cluster.BOOTSTRAP_VARIABLE, "there:9092")
    assert which_cluster.bootstrap_of(None, None, None) == "there:9092"
    assert which_cluster.bootstrap_of("here:9092", None, None) == "here:9092"
    assert which_cluster.bootstrap_of(None, Path("data"), None) is None
    assert which_cluster.bootstrap_of(None, None, Path("gateway.toml")) is None
    load_config(environment={which_cluster.BOOTSTRAP_VARIABLE: "there:9092"})  # it is no setting


@pytest.mark.parametrize(
    ("named", "name"), [((Path("f"), None), "--config"), ((None, Path("d")), "--data-dir")]
)
def test_two_names_of_a_cluster_are_refused(
    named: tuple[Path | None, Path | None], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        which_cluster.addresses_to_ask("here:9092", *named, 1.0)
    assert ended.value.code == 2
    assert f"either with --bootstrap or with {name}" in capsys.readouterr().err


def test_the_default_address_is_asked_only_where_no_option_names_a_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that was given another gateway's settings must change nothing on the default one."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "seqgate.toml"
    file.write_text('"log.dirs" = "elsewhere"')
    assert which_cluster.addresses_of_gateway(None, None) == (("127.0.0.1", 9092),)
    for named in ((file, None), (None, tmp_path), (file, tmp_path)):
        with pytest.raises(NotRunning):
            which_cluster.addresses_of_gateway(*named)
