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
