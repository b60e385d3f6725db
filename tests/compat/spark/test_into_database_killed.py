"""The pipeline's process is killed by SIGKILL at chosen moments; afterwards another one continues, and the
database has every line exactly once."""

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
from pyspark.sql import SparkSession

from seqgate.spark_kafka_compat.databases import Database
from seqgate.spark_kafka_compat.positions import TopicPartition, stored_positions
from seqgate.spark_kafka_compat.session import JARS_VARIABLE
from tests.compat.conftest import empty_database
from tests.compat.spark.lines_into_database import CREATE_LINES, read_all
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


def run_until(death: Death, bootstrap: str, topic: str, url: str, checkpoint: Path) -> None:
    """Run the pipeline in a process that dies where `death` kills it."""
    words = [bootstrap, topic, url, str(checkpoint), *map(str, death)]
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
    assert status == -signal.SIGKILL, errors.read_text(errors="replace")[-4_000:]


def committed_batches(checkpoint: Path) -> int:
    return len([path for path in checkpoint.glob("commits/*") if path.name.isdigit()])


def planned_batches(checkpoint: Path) -> int:
    return len([path for path in checkpoint.glob("offsets/*") if path.name.isdigit()])


def found_lines(url: str) -> list[tuple[int, int]]:
    with Database(url).transaction() as transaction:
        return list(transaction.execute("SELECT line, place FROM lines").fetchall())


class Lives(NamedTuple):
    """The database, the successive deaths of one pipeline, and whether the checkpoint is lost with the last."""

    database: str
    deaths: tuple[Death, ...]
    loses_checkpoint: bool = False


LIVES = {
    # between the commit of the second micro-batch in the database and Spark's
    "committed": Lives("PostgreSQL", (("committed", CLAIMED + 2),)),
    # in the middle of a micro-batch's rows; between its commit in the database and Spark's
    "rows": Lives("SQLite", (("rows", 4), ("committed", CLAIMED + 1))),
    # before the commit of the second micro-batch of a run, and after that commit
    "committing": Lives(
        "PostgreSQL", (("committing", CLAIMED + 2), ("committed", CLAIMED + 2)), loses_checkpoint=True
    ),
}


@pytest.mark.parametrize("lives", in_tiers(LIVES, nightly=["rows", "committing"]))
def test_every_line_is_there_once(
    request: pytest.FixtureRequest,
    lives: str,
    spark: SparkSession,
    bootstrap: str,
    topics: Topics,
    tmp_path: Path,
) -> None:
    database, deaths, loses_checkpoint = LIVES[lives]
    database_url = empty_database(request, database, tmp_path)
    topic = topics.fresh(partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        topics.fill(topic, range(partition, LINES, PARTITIONS), partition=partition)
    with Database(database_url).transaction() as transaction:
        transaction.execute(CREATE_LINES)
    checkpoint = tmp_path / "checkpoint"

    for death in deaths:
        before = len(found_lines(database_url))
        run_until(death, bootstrap, topic, database_url, checkpoint)
        found = found_lines(database_url)
        assert len(set(found)) == len(found)
        if death[0] == "committed":
            assert len(found) > before
            assert planned_batches(checkpoint) == committed_batches(checkpoint) + 1
    if loses_checkpoint:
        shutil.rmtree(checkpoint)
    assert 0 < len(found_lines(database_url)) < LINES
    read_all(spark, bootstrap, topic, Database(database_url), str(checkpoint))

    assert sorted(found_lines(database_url)) == [(line, line % PARTITIONS) for line in range(LINES)]
    ends = {TopicPartition(topic, partition): LINES // PARTITIONS for partition in range(PARTITIONS)}
    assert stored_positions(Database(database_url), "lines") == ends
