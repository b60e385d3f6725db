"""The suite of `examples/pytest-plugin` passes in an environment into which a user has installed Seqgate, and
finds a mistake.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.examples.example import Example
from tests.support.gateway_process import REPOSITORY

SOURCES = ("src", "gateway", "log", "pid_allocator", "seq_validator", "spark_kafka_compat")
PAGES = ("hatch_build.py", "pyproject.toml", "README.md", "LICENSE")
INSTALL, TEST = "pip install ../.. -r requirements.txt", "pytest"


@pytest.fixture
def example(tmp_path: Path) -> Iterator[Example]:
    """The project in a clone of its own, with an empty virtual environment first on the PATH."""
    clone, environment = tmp_path / "clone", tmp_path / "environment"
    for name in SOURCES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / name, clone / name, symlinks=True, ignore=ignored)
    for name in PAGES:
        shutil.copy(REPOSITORY / name, clone / name)
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    variables = {
        "PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": "",
        "PIP_NO_COMPILE": "1",  # most modules are never imported here
    }
    with Example("pytest-plugin", clone / "examples", variables) as copy:
        yield copy
    shutil.rmtree(environment)


def test_the_suite_passes_and_finds_a_mistake(example: Example) -> None:
    example.run(INSTALL)
    assert " 11 passed in " in example.run(TEST)

    program = example.directory / "shipping.py"
    lines = program.read_text().splitlines(keepends=True)
    wrong = [line for line in lines if "self._producer.send_offsets_to_transaction(" not in line]
    assert len(wrong) == len(lines) - 1
    program.write_text("".join(wrong))
    failed = example.start(TEST, "-k", "another_instance").expect_end(1)
    assert "AssertionError: topic shipments: " in failed
    assert " doubled: " in failed
