from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from rich.console import Console

from examples.demo import __main__ as command
from examples.demo.processes import DemoGateway
from seqgate.spark_kafka_compat.session import JARS_VARIABLE
from tests.support.gateway_cluster import await_true
from tests.support.gateway_process import REPOSITORY
from tests.support.setup_peers import spark_connector_libs

SCRIPT = "import sys; from pathlib import Path; from examples.demo.__main__ import run_demo; sys.exit(run_demo({}))"


def demo(arguments: str) -> subprocess.CompletedProcess[str]:
    jars = spark_connector_libs()
    environment = {**os.environ, "COLUMNS": "120"}
    if jars.is_dir():
        environment[JARS_VARIABLE] = str(jars)
    command = [sys.executable, "-c", SCRIPT.format(arguments)]
    return subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=480, check=False
    )


@pytest.mark.tier("nightly")
def test_everything_adds_up(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    done = demo(f"rows=6000, fault_rate=0.2, keep=Path({str(kept)!r})")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Everything adds up" in done.stdout
    assert "duplicates rejected by the gateway" in done.stdout
    assert (kept / "meta.properties").is_file()


@pytest.mark.tier("nightly")
def test_only_those_with_rights_get_in() -> None:
    done = demo("rows=2000, fault_rate=0.1, secure=True")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Everything adds up" in done.stdout
    assert "connection closed" in done.stdout
    assert done.stdout.count("refused: TOPIC_AUTHORIZATION_FAILED") == 3
    assert done.stdout.count("refused: AUTHENTICATION") == 1


def test_flights_survive_gateways_that_are_killed() -> None:
    done = demo("rows=15_000, cluster=True, kill_every_s=2.0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Everything adds up" in done.stdout
    assert "gateway was killed" in done.stdout


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "pyspark" else name)
    with pytest.raises(SystemExit, match=r"the package pyspark, .*run: pip install '\.\[demo\]'"):
        command.main([])


def test_two_demos_at_once_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--secure", "--cluster"])
    assert "--cluster: not allowed with argument --secure" in capsys.readouterr().err


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    done = demo(f"keep=Path({str(tmp_path)!r})")
    assert done.returncode == 2
    assert "is not empty" in done.stdout


def test_at_the_end_the_console_stays_open_until_enter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pages: list[str] = []

    with DemoGateway(tmp_path / "data", tmp_path / "gateway.log", console=True) as gateway:
        await_true(lambda: gateway.console_url is not None, "the console has an address", 120)

        def enter(prompt: str) -> str:
            with urllib.request.urlopen(f"{gateway.console_url}producers", timeout=60) as answer:
                pages.append(answer.read().decode())
            return prompt

        monkeypatch.setattr("builtins.input", enter)
        command._stay_open(Console(width=200), gateway)
        told = capsys.readouterr().out
        assert f"{gateway.console_url}producers\n" in told
        assert f"seqgate verdicts --data-dir {tmp_path / 'data'}" in told
    (page,) = pages
    assert "Duplicates answered" in page
