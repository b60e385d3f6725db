"""The process of a broker under test: when it ends, where its data is, and what it imports."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from seqgate.gateway.testing import BrokerProcess
from seqgate.gateway.testing.control.faults_command import ask
from seqgate.gateway.testing.data_directory import VARIABLE
from tests.support.wire import Wire

SERVE = [sys.executable, "-m", "seqgate", "serve", "--listen", "127.0.0.1:0", "--test-control", "127.0.0.1:0"]
LIMIT_S = 60.0
PARENT = """
import os, signal, sys
from seqgate.gateway.testing import BrokerProcess
broker = BrokerProcess()
broker.start()
print(broker._process.pid, broker.directory, flush=True)
sys.stdin.read()
os.kill(os.getpid(), signal.SIGKILL)
"""


@contextmanager
def started(place: Path, *words: str, python: Sequence[str] = ()) -> Iterator[tuple[str, str, Path]]:
    """Yield the addresses of the test control and for clients, and the data directory, of a broker that stops
    cleanly at the end.

    Temporary data is in `place`; the standard error goes into a file beside it.
    """
    with place.with_suffix(".errors").open("w") as errors:
        process = subprocess.Popen(
            [SERVE[0], *python, *SERVE[1:], *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, VARIABLE: str(place), "PYTHONMALLOC": "pymalloc"},
        )
    with process:
        assert process.stdout is not None
        control = process.stdout.readline().rpartition("//")[2].strip()
        found = re.match(r"seqgate ready on (\S+) \(data in (\S+),", process.stdout.readline())
        assert found is not None
        try:
            yield control, found[1], Path(found[2])
        finally:
            process.terminate()
            assert process.wait(LIMIT_S) == 0


def is_gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / "place"
    made.mkdir()
    return made


def test_a_broker_without_a_data_directory_removes_its_own(place: Path) -> None:
    with started(place) as (_, _, directory):
        assert directory.parent.parent == place
        assert (directory / "meta.properties").is_file()
    assert list(place.iterdir()) == []


def test_a_data_directory_of_the_test_stays_and_a_reset_removes_only_data(
    place: Path, tmp_path: Path
) -> None:
    given = tmp_path / "data"
    with started(place, "--data-dir", str(given)) as (control, bootstrap, directory):
        assert directory == given
        (given / "notes.txt").write_text("mine")
        (given / "more").mkdir()
        with Wire(bootstrap) as wire:
            wire.call("metadata", 12, topics=None)
        assert ask(control, "POST", "/topics", {"name": "t"}) == {"name": "t", "partitions": 1, "configs": {}}
        assert (given / "t-0").is_dir()
        assert ask(control, "POST", "/reset")["bootstrap"] == bootstrap
        assert not (given / "t-0").exists()
    assert (given / "meta.properties").is_file()
    assert (given / "notes.txt").read_text() == "mine"
    assert (given / "more").is_dir()
    assert list(place.iterdir()) == []


def test_a_broker_ends_with_a_test_process_that_is_killed(tmp_path: Path) -> None:
    environment = {**os.environ, VARIABLE: str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as parent:
        assert parent.stdout is not None
        number, directory = parent.stdout.readline().split()
        assert not is_gone(int(number))
        parent.communicate("", timeout=LIMIT_S)
        assert parent.returncode == -signal.SIGKILL
    deadline_s = time.monotonic() + LIMIT_S
    while not is_gone(int(number)):
        assert time.monotonic() < deadline_s, "the broker outlives its test"
        time.sleep(0.01)
    # The process that would have removed the directory was killed; the next one that needs a directory does.
    assert Path(directory).is_dir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(tmp_path))
        with BrokerProcess() as broker:
            assert [each.name for each in tmp_path.iterdir()] == [broker.directory.parent.name]
    assert list(tmp_path.iterdir()) == []


def refusal(place: Path, *words: str) -> str:
    done = subprocess.run(
        [*SERVE, *words],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={**os.environ, VARIABLE: str(place)},
    )
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


def test_a_broker_does_not_start_for_a_process_that_has_ended(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert (
        refusal(tmp_path, "--exit-with", str(ended.pid))
        == f"seqgate: --exit-with {ended.pid}: No such process\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_broker_does_not_start_without_a_place_for_its_data(tmp_path: Path) -> None:
    sentence = refusal(tmp_path / "none")
    assert sentence.startswith("seqgate: can't make a temporary data directory: ")
    assert sentence.count("\n") == 1


def test_a_broker_imports_only_what_it_needs(place: Path) -> None:
    with started(place, python=("-X", "importtime")):
        pass
    lines = place.with_suffix(".errors").read_text().splitlines()
    imported = {line.rpartition("|")[2].strip() for line in lines}
    assert "seqgate.gateway.testing.control.serving" in imported
    needless = {
        "hypothesis",
        "http.client",
        "typer",
        "kafka",
        "seqgate.gateway.testing.broker_process",
        "seqgate.gateway.console",
    }
    assert imported & needless == set()
