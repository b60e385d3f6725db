"""The options of `seqgate serve` that no setting may contradict, from wherever the setting comes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from seqgate.gateway.backends.backend import StartFailed
from seqgate.gateway.serving import USAGE_ERROR, Options, run_with


@pytest.fixture(autouse=True)
def _garbage_collection() -> Iterator[None]:
    yield
    gc.enable()


@pytest.fixture(autouse=True)
def _no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StartFailed("workers start")

    monkeypatch.setattr("seqgate.gateway.running_workers.run_workers", refuse)


@pytest.mark.parametrize("source", ["option", "--set", "environment", "--config"])
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (Options(test_control="127.0.0.1:0"), "--test-control controls one process"),
        (Options(console=True), "--console shows one process"),
    ],
    ids=["--test-control", "--console"],
)
def test_workers_are_refused_from_every_source(
    options: Options,
    sentence: str,
    source: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Several workers have neither a test control nor a console, and an option is never dropped in silence."""
    options = options._replace(data_dir=tmp_path / "data")
    match source:
        case "option":
            options = options._replace(workers=2)
        case "--set":
            options = options._replace(settings=["seqgate.workers=2"])
        case "environment":
            monkeypatch.setenv("SEQGATE_WORKERS", "2")
        case _:
            file = tmp_path / "seqgate.toml"
            file.write_text("[seqgate]\nworkers = 2\n")
            options = options._replace(config_file=file)
    assert run_with(options) == USAGE_ERROR
    assert f"seqgate: {sentence}" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("source", ["environment", "--config", "--data-dir", "--set"])
def test_only_flags_name_the_data_directory_of_a_gateway_under_test(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its reset empties the directory, which may be that of a gateway in use."""

    def refuse(*_: object, **__: object) -> None:
        raise StartFailed("it starts")

    monkeypatch.setattr("seqgate.gateway.testing.control.serving.serve_under_test", refuse)
    directory = tmp_path / "data"
    monkeypatch.setenv("SEQGATE_LOG_DIRS", str(directory))
    options = Options(test_control="127.0.0.1:0")
    match source:
        case "--config":
            monkeypatch.delenv("SEQGATE_LOG_DIRS")
            file = tmp_path / "seqgate.toml"
            file.write_text(f"log.dirs = '{directory}'\n")
            options = options._replace(config_file=file)
        case "--data-dir":
            options = options._replace(data_dir=directory)
        case "--set":
            options = options._replace(settings=[f"log.dirs={directory}"])
    is_refused = source in {"environment", "--config"}
    assert run_with(options) == (USAGE_ERROR if is_refused else 1)
    told = "--test-control empties its data directory: name" if is_refused else "it starts"
    assert f"seqgate: {told}" in capsys.readouterr().err


@pytest.mark.parametrize("source", ["option", "--set"])
def test_a_gateway_under_test_has_no_bucket(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket = f"file://{tmp_path}/bucket"
    options = Options(data_dir=tmp_path / "data", test_control="127.0.0.1:0")
    if source == "option":
        options = options._replace(cluster=bucket)
    else:
        options = options._replace(settings=[f"seqgate.cluster={bucket}"])
    assert run_with(options) == USAGE_ERROR
    assert "with its own data: leave --cluster" in capsys.readouterr().err
