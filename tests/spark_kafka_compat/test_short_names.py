"""The names that people import: `spark_kafka_compat` is the same package as `seqgate.spark_kafka_compat`;
`seqgate.spark` and `seqgate.testing` have all that is public.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import seqgate.gateway.testing
import seqgate.spark
import seqgate.spark_kafka_compat
import seqgate.testing
from tests.support.gateway_process import SOURCES

SAME = """
import sys
import spark_kafka_compat
import spark_kafka_compat.pipelines.streaming as streaming
from spark_kafka_compat import SparkCompatError, sink
from spark_kafka_compat.endpoints import sink as its_sink

import seqgate.spark
import seqgate.spark_kafka_compat.pipelines.streaming

assert spark_kafka_compat is seqgate.spark_kafka_compat
assert streaming is seqgate.spark_kafka_compat.pipelines.streaming
assert streaming.__name__ == streaming.__spec__.name == "seqgate.spark_kafka_compat.pipelines.streaming"
assert sink is its_sink is seqgate.spark.sink
assert SparkCompatError is seqgate.spark.SparkCompatError
for name, module in sys.modules.items():
    if name.startswith("spark_kafka_compat."):
        assert module is sys.modules["seqgate." + name], name
try:
    import spark_kafka_compat.nothing
except ModuleNotFoundError as error:
    print(error)
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in another folder, where `spark_kafka_compat` is not the folder of the repository."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={"PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_each_module_is_the_same_object_under_both_names(tmp_path: Path) -> None:
    done = run(tmp_path, "-c", SAME)
    assert (done.stderr, done.stdout) == ("", "No module named 'spark_kafka_compat.nothing'\n")


@pytest.mark.parametrize("module", ["spark_kafka_compat", "spark_kafka_compat.pipelines.audit"])
def test_programs_run_under_both_names(tmp_path: Path, module: str) -> None:
    by_both = [run(tmp_path, "-m", name, "--help") for name in (module, f"seqgate.{module}")]
    assert by_both[0].stdout == by_both[1].stdout != ""
    assert [done.returncode for done in by_both] == [0, 0]


def test_the_modules_for_people_have_all_public_names() -> None:
    assert sorted(seqgate.testing.__all__) == sorted(seqgate.gateway.testing.__all__)
    assert set(seqgate.spark_kafka_compat.__all__) < set(seqgate.spark.__all__)
    for module in (seqgate.testing, seqgate.spark):
        assert all(hasattr(module, name) for name in module.__all__)
