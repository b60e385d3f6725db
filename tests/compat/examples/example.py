"""A copy of one of the projects in `examples/`, whose commands are those of its README."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from tests.support.gateway_process import REPOSITORY, SOURCES

EXAMPLES = REPOSITORY / "examples"
LIMIT_S = 120.0
POLL_S = 0.02
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
_BUILT = shutil.ignore_patterns("target", "__pycache__", ".*")


def documented_commands(readme: Path) -> list[str]:
    """Return the lines of the shell blocks of a page."""
    return [
        line for block in _BLOCK.findall(readme.read_text(encoding="utf-8")) for line in block.splitlines()
    ]


def await_that(is_so: Callable[[], bool], what: str, limit_s: float = LIMIT_S) -> None:
    """Poll a foreign process until `is_so` holds; fail the test with `what` after the limit."""
    deadline_s = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < deadline_s, f"{what}: not within {limit_s:g} s"
        time.sleep(POLL_S)


class Program:
    """A running command of an example."""

    def __init__(self, command: str, directory: Path, environment: Mapping[str, str]) -> None:
        self.command = command
        self._output = directory / f"output-{time.monotonic_ns()}"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                ["sh", "-c", command] if "|" in command else shlex.split(command),
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        """All that the program has printed so far, errors included."""
        return self._output.read_text(errors="replace")

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def await_output(self, text: str) -> None:
        """Wait until the program has printed `text`; fail the test if it ends without."""

        def is_printed() -> bool:
            has_ended = self.has_ended
            printed = text in self.output
            assert printed or not has_ended, f"{self.command} ended\n{self.output[-4000:]}"
            return printed

        await_that(is_printed, f"{self.command} prints {text!r}")

    def expect_end(self, status: int = 0) -> str:
        """Wait for the end with this exit status, and return the output."""
        try:
            ended = self._process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.command} does not end\n{self.output[-4000:]}") from None
        assert ended == status, f"{self.command} ended with {ended}\n{self.output[-4000:]}"
        return self.output

    def terminate(self) -> None:
        """Ask the program to end, as an operator or a supervisor does."""
        self._process.terminate()

    def kill(self) -> None:
        """End the program, and all that it started, by SIGKILL."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Example:
    """A copy of a project, and the programs that a test runs in it. The end of the context kills all of them."""

    def __init__(self, name: str, directory: Path, environment: Mapping[str, str]) -> None:
        """Copy the project `name` into `directory`. `environment` is what its README tells to set."""
        self.directory = directory / name
        shutil.copytree(EXAMPLES / name, self.directory, ignore=_BUILT)
        self._commands = documented_commands(self.directory / "README.md")
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(SOURCES),
            "PYTHONUNBUFFERED": "1",
            **environment,
        }
        self._programs: list[Program] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for program in self._programs:
            program.kill()

    def start(self, command: str, *more: str) -> Program:
        """Start a command that stands in the README. `more` are arguments added at its end."""
        assert command in self._commands, f"the README does not tell to run {command!r}: {self._commands}"
        whole = " ".join([command, *map(shlex.quote, more)])
        program = Program(whole, self.directory, self._environment)
        self._programs.append(program)
        return program

    def run(self, command: str, *more: str) -> str:
        """Run a command that stands in the README to its end, and return what it printed."""
        return self.start(command, *more).expect_end()
