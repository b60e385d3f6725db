"""The pipeline's process is killed by SIGKILL at chosen moments; afterwards the database has every line
exactly once."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from seqgate.spark_kafka_compat.databases import Database
from seqgate.spark_kafka_compat.positions import Place, stored_positions
from seqgate.spark_kafka_compat.session import JARS_VARIABLE
from tests.compat.conftest import empty_database
from tests.compat.spark.lines_into_database import CREATE_LINES
from tests.compat.spark.topics import Topics
from tests.support.dying_database import Death
from tests.support.setup_peers import spark_connector_libs
from tests.tiers import in_tiers

REPOSITORY = Path(__file__).resolve().parents[3]
LINES, PARTITIONS = 2_000, 2
PATIENCE_S = 300
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java options that halve the processor time of a process which runs only a few micro-batches."""
CLAIMED = 2
"""Commits before that of the first micro-batch: one creates the tables, one claims the checkpoint."""


def run(bootstrap: str, topic: str, url: str, checkpoint: Path, death: Death | None) -> None:
    """Run the process once. It must finish, or die where `death` kills it."""
    words = [bootstrap, topic, url, str(checkpoint), *map(str, death or ())]
    paths = os.pathsep.join(
        filter(None, [str(REPOSITORY / "src"), str(REPOSITORY), os.environ.get("PYTHONPATH")])
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment |= {
        JARS_VARIABLE: str(spark_connector_libs()),
        "PYTHONPATH": paths,
        "JAVA_TOOL_OPTIONS": SHORT_LIVED,
    }
    errors = checkpoint.with_name("stderr")
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.compat.spark.lines_into_database", *words],
            cwd=checkpoint.parent,
            env=environment,
            stderr=stderr,
            start_new_session=True,
        )
    try:
        status = process.wait(PATIENCE_S)
    finally:
        # Kill the Java process too, which survives the death of Python.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert status == (-signal.SIGKILL if death else 0), errors.read_text(errors="replace")[-4_000:]


def committed_batches(checkpoint: Path) -> int:
    return len([path for path in checkpoint.glob("commits/*") if path.name.isdigit()])


def planned_batches(checkpoint: Path) -> int:
    return len([path for path in checkpoint.glob("offsets/*") if path.name.isdigit()])


def found_lines(url: str) -> list[tuple[int, int]]:
    with Database(url).transaction() as transaction:
        return list(transaction.execute("SELECT line, place FROM lines").fetchall())


class Lives(NamedTuple):
    """The successive deaths of one pipeline, and whether the checkpoint is lost with the last."""

    deaths: tuple[Death, ...]
    loses_checkpoint: bool


LIVES = {
    # in the middle of a micro-batch's rows; between its commit in the database and Spark's
    "SQLite": Lives((("rows", 4), ("committed", CLAIMED + 1)), loses_checkpoint=False),
    # before the commit of the second micro-batch of a run, and after that commit
    "PostgreSQL": Lives((("committing", CLAIMED + 2), ("committed", CLAIMED + 2)), loses_checkpoint=True),
}


@pytest.fixture(params=in_tiers(LIVES, nightly=["SQLite"]))
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return empty_database(request, tmp_path)


def test_every_line_is_there_once(
    request: pytest.FixtureRequest, database_url: str, bootstrap: str, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.fresh(partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        topics.fill(topic, range(partition, LINES, PARTITIONS), partition=partition)
    with Database(database_url).transaction() as transaction:
        transaction.execute(CREATE_LINES)
    checkpoint = tmp_path / "checkpoint"

    deaths, loses_checkpoint = LIVES[request.node.callspec.params["database_url"]]
    for death in deaths:
        before = len(found_lines(database_url))
        run(bootstrap, topic, database_url, checkpoint, death)
        found = found_lines(database_url)
        assert len(set(found)) == len(found)
        if death[0] == "committed":
            assert len(found) > before
            assert planned_batches(checkpoint) == committed_batches(checkpoint) + 1
    if loses_checkpoint:
        shutil.rmtree(checkpoint)
    assert 0 < len(found_lines(database_url)) < LINES
    run(bootstrap, topic, database_url, checkpoint, None)

    assert sorted(found_lines(database_url)) == [(line, line % PARTITIONS) for line in range(LINES)]
    ends = {Place(topic, partition): LINES // PARTITIONS for partition in range(PARTITIONS)}
    assert stored_positions(Database(database_url), "lines") == ends
