from __future__ import annotations

import subprocess
import sys

import pytest

from seqgate.spark_kafka_compat.session import java_major_version


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023', 21),
        ("nothing of the kind", None),
    ],
)
def test_java_versions_are_parsed(text: str, major: int | None) -> None:
    assert java_major_version(text) == major


class TestSilentStart:
    """What another process writes to the stderr that it inherits, as the JVM does, at and after its start."""

    PROGRAM = """
import subprocess, sys, threading
from seqgate.spark_kafka_compat.session import _silent_start
with _silent_start():
    jvm = subprocess.Popen(["sh", "-c", "echo resolving >&2; echo; read go; echo later >&2"], stdin=-1, stdout=-1)
    jvm.stdout.readline()
    if "fail" in sys.argv:
        raise SystemExit("Spark does not start")
jvm.communicate(b"go\\n")
for thread in threading.enumerate():
    if thread.daemon:
        thread.join()
"""

    def run(self, *arguments: str) -> str:
        command = [sys.executable, "-c", self.PROGRAM, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False).stderr

    def test_a_start_prints_nothing_and_later_lines_pass(self) -> None:
        assert self.run() == "later\n"

    def test_a_start_that_fails_prints_everything(self) -> None:
        assert self.run("fail") == "resolving\nSpark does not start\n"
