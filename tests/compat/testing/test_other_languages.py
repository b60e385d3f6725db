"""The examples in Java, Go, Rust and Node order faults over HTTP, and their clients' records are stored
exactly once.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.testing_examples import EXAMPLES, Example

TESTS = 3
"""Tests of each example."""
NODE = next(example for example in EXAMPLES if example.name == "node")


def output_of(example: Example, place: Path) -> tuple[int, str]:
    """Prepare a copy of the project if it has packages of its own, run its tests, and return the exit code
    and the output.
    """
    if example is NODE:
        prepared = example.run(example.prepare, place)
        assert prepared.returncode == 0, prepared.stdout
    done = example.run(example.test, place)
    return done.returncode, done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_passes_as_its_reader_runs_it(example: Example, tmp_path: Path) -> None:
    code, output = output_of(example, example.copy_to(tmp_path))
    assert (code, example.count_passed(output)) == (0, TESTS), output


def test_an_example_names_the_records_that_a_wrong_producer_doubles(tmp_path: Path) -> None:
    place = NODE.copy_to(tmp_path)
    application = place / "orders.js"
    right = application.read_text()
    assert right.count("idempotent: true") == 1
    application.write_text(right.replace("idempotent: true", "idempotent: false"))
    code, output = output_of(NODE, place)
    assert code == 1, output
    assert "topic orders: 2 doubled: 'one'" in output


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_has_its_packages_from_where_its_reader_does(example: Example) -> None:
    public = {
        "https://github.com/rust-lang/crates.io-index",
        "http://maven.apache.org/POM/4.0.0",
        "http://maven.apache.org/xsd/maven-4.0.0.xsd",
        "http://www.w3.org/2001/XMLSchema-instance",
    }
    for name in (
        "pom.xml",
        "go.mod",
        "go.sum",
        "Cargo.toml",
        "Cargo.lock",
        "package.json",
        "package-lock.json",
    ):
        file = example.folder / name
        found = set(re.findall(r"https?://[^\s\"<]+", file.read_text())) if file.is_file() else set()
        assert found <= public
