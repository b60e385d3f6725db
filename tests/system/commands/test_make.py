"""What `make run` says while it installs, with a pip that only prints, and where it puts the console."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.gateway_process import REPOSITORY

PYTHON = """\
#!/bin/sh
case "$*" in
    *"pip install"*)
        echo "Obtaining file:///checkout"
        echo "Collecting uvloop>=0.21 (from seqgate==0.1.0)"
        echo "  Using cached uvloop.whl (1 kB)"
        echo "Collecting kafka-python[crc32c]<4 (from seqgate==0.1.0)"
        [ -e "$0.fails" ] && { echo "ERROR: no network" >&2; exit 1; }
        echo "Installing build dependencies: started"
        echo "Installing collected packages: uvloop, kafka-python";;
esac
"""


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment whose python installs nothing."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    return tmp_path


def make(environment: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", f"VENV={environment}", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)


def test_an_installation_names_each_package(environment: Path) -> None:
    done = make(environment, f"{environment}/.ready-run")
    assert done.stdout.splitlines()[1:] == [
        "  uvloop",
        "  kafka-python",
        "Unpacking the packages ...",
        "Compiling the packages ...",
    ]
    assert (environment / ".ready-run").exists()


def test_an_installation_that_fails_is_tried_again(environment: Path) -> None:
    (environment / "bin" / "python.fails").touch()
    done = make(environment, f"{environment}/.ready-run")
    assert done.returncode == 2
    assert "ERROR: no network" in done.stderr
    assert not (environment / ".ready-run").exists()


@pytest.mark.parametrize(
    ("given", "option"),
    [((), "--console "), (("CONSOLE=127.0.0.1:8081",), "--console-listen 127.0.0.1:8081 ")],
)
def test_the_address_of_the_console(environment: Path, given: tuple[str, ...], option: str) -> None:
    assert f"seqgate serve --guide {option}--listen " in make(environment, "--dry-run", "run", *given).stdout
