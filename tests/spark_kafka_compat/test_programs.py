"""Without PySpark the programs print their help, and one sentence instead of a traceback."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module, metadata

import pytest

from seqgate.spark_kafka_compat.pipelines import streaming

NAMES = ("audit", "land", "into_database")
NEEDED = {
    "audit": ["t", "--bootstrap", "a:1"],
    "land": ["t", "--bootstrap", "a:1", "--path", "p"],
    "into_database": [
        *("t", "--bootstrap", "a:1", "--database", "sqlite:///x", "--table", "t"),
        *("--pipeline", "p", "--checkpoint", "c"),
    ],
}


@pytest.fixture
def no_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the import of PySpark fail."""
    version = metadata.version

    def without(name: str) -> str:
        if name.startswith("pyspark"):
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(metadata, "version", without)
    monkeypatch.setitem(sys.modules, "pyspark", None)


@pytest.mark.usefixtures("no_pyspark")
@pytest.mark.parametrize("name", NAMES)
def test_help_without_pyspark(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    program = import_module(f"seqgate.spark_kafka_compat.pipelines.{name}")
    with pytest.raises(SystemExit) as ended:
        program.main(["--help"])
    assert ended.value.code == 0
    assert "--bootstrap" in capsys.readouterr().out


@pytest.mark.usefixtures("no_pyspark")
@pytest.mark.parametrize("name", NAMES)
def test_a_run_without_pyspark_says_what_to_install(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    program = import_module(f"seqgate.spark_kafka_compat.pipelines.{name}")
    assert program.main(NEEDED[name]) == 2
    told = capsys.readouterr().err
    assert told == f'{name}: PySpark is not installed; install it with: pip install "seqgate[spark]"\n'


@pytest.mark.parametrize("module", ["spark_kafka_compat", "seqgate.spark_kafka_compat.pipelines"])
def test_the_package_lists_its_programs(module: str) -> None:
    told = subprocess.run([sys.executable, "-m", module], capture_output=True, text=True, check=True).stdout
    for name in NAMES:
        assert f"python -m seqgate.spark_kafka_compat.pipelines.{name} " in told


@pytest.mark.parametrize("name", NAMES)
def test_an_endpoint_that_does_not_answer_is_reported_before_spark_starts(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(streaming, "session", lambda app_name, **_: started.append(app_name))
    program = import_module(f"seqgate.spark_kafka_compat.pipelines.{name}")
    arguments = ["127.0.0.1:1" if argument == "a:1" else argument for argument in NEEDED[name]]
    assert program.main(arguments) == 2
    assert capsys.readouterr().err.startswith(f"{name}: Nothing answers at 127.0.0.1:1 ")
    assert started == []
