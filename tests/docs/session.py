"""A terminal in which the blocks of one page run, one after the other, beside a gateway of the page's own.

All blocks of a page share a bash, a folder with nothing but `data` in it, and a gateway. Addresses of a page,
such as 127.0.0.1:9092, become free ports. `seqgate serve` in the foreground would hold the terminal, so it
becomes a process in the background, for which the terminal waits; it takes the place of the gateway before
it.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.gateway_process import AS_INSTALLED, REPOSITORY, SOURCES, free_port
from tests.support.kafka_tools import TOOL_CLASSES
from tests.support.setup_peers import spark_connector_libs

LIMIT_S = 180
ADDRESS = re.compile(r"\b(?:127\.0\.0\.1|localhost|0\.0\.0\.0):(\d{4,5})\b")
LISTENS = "127.0.0.1:9092"
"""The address of a gateway that a page takes for granted."""
REFUSED = re.compile(r"^(?P<command>\S.*?) +# refused.*$", re.MULTILINE)
"""A command of which its page says that it fails."""
FIRST_COMMAND = re.compile(r"\bseqgate [a-z]+|\bstop-gateway\b")
NEEDS_GATEWAY = re.compile(r"\bseqgate |:9092\b")
TERMINAL = """\
set -eo pipefail
seqgate() {{
    if [ "$1" != serve ]; then command seqgate "$@"; return; fi
    stop-gateway
    case " $* " in
        *" --listen "*) ;;
        *) grep -qs '^listeners' -- "$@" || set -- "$@" --listen {listens};;
    esac
    : > {directory}/serve.out
    "$(type -P seqgate)" "$@" > {directory}/serve.out 2>&1 < /dev/null & echo $! > {directory}/serve.pid
    disown
    until grep -q '^seqgate ready' {directory}/serve.out; do
        kill -0 "$(cat {directory}/serve.pid)" || {{ cat {directory}/serve.out; return 1; }}
        sleep 0.05
    done
}}
stop-gateway() {{
    [ -e {directory}/serve.pid ] || return 0
    kill "$(cat {directory}/serve.pid)"
    tail --pid="$(cat {directory}/serve.pid)" -s 0.05 -f /dev/null
    rm {directory}/serve.pid
}}
"""


class Failed(AssertionError):
    """A block ended with an error; the message has its output."""


class Session:
    """A terminal for the blocks of one page."""

    def __init__(self, directory: Path) -> None:
        """Prepare a terminal whose files are in the empty `directory`; the blocks work in its folder `home`."""
        self.directory = directory
        self.home = directory / "home"
        self.home.mkdir()
        self._ports: dict[str, int] = {}
        self._blocks = 0
        self._had_gateway = False
        self._programs(directory / "bin")
        begin = directory / "terminal.sh"
        begin.write_text(TERMINAL.format(directory=shlex.quote(str(directory)), listens=self.own(LISTENS)))
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=self.home,
            env=self._environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._do(begin)

    def _programs(self, folder: Path) -> None:
        """Write the programs that pages name: seqgate, python, and Kafka's tools."""
        folder.mkdir()
        python = shlex.quote(sys.executable)
        programs = {"seqgate": f"{python} -m seqgate", "python": python, "python3": python}
        for tool in TOOL_CLASSES:
            programs[tool] = programs[f"{tool}.sh"] = f"{python} -m tests.docs.kafka_tool {tool}"
        for name, command in programs.items():
            path = folder / name
            path.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            path.chmod(0o755)

    def _environment(self) -> Mapping[str, str]:
        inherited = {name: text for name, text in os.environ.items() if not name.startswith("SEQGATE_")}
        return {
            **inherited,
            "HOME": str(self.home),
            "PATH": os.pathsep.join((str(self.directory / "bin"), inherited.get("PATH", ""))),
            "PYTHONPATH": os.pathsep.join(map(str, (SOURCES, REPOSITORY, AS_INSTALLED))),
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "140",
            "SEQGATE_SPARK_JARS": str(spark_connector_libs()),
        }

    def own(self, text: str) -> str:
        """Return the text of a block with the session's ports in place of the page's."""

        def port(match: re.Match[str]) -> str:
            if match[1] not in self._ports:
                self._ports[match[1]] = free_port()
            return f"127.0.0.1:{self._ports[match[1]]}"

        return ADDRESS.sub(port, text)

    def of_page(self, text: str) -> str:
        """Return an output with the page's ports in place of the session's."""
        for port, own in self._ports.items():
            text = text.replace(f"127.0.0.1:{own}", f"127.0.0.1:{port}")
        return text

    def shell(self, script: str) -> str:
        """Run a script in the terminal; return what it printed.

        Raises Failed when the script fails or does not end within LIMIT_S.
        """
        self._begin(script)
        return self._run(script)

    def python(self, program: str) -> str:
        """Run a program in the terminal; return what it printed. Raises Failed as `shell`."""
        self._begin(program)
        path = self.directory / f"program-{self._blocks}.py"
        path.write_text(self.own(program))
        return self._run(f"python {shlex.quote(str(path))}")

    def _begin(self, text: str) -> None:
        """Start a gateway for the first text that needs one, unless an earlier text started one itself."""
        command = FIRST_COMMAND.search(text)
        starts = command is not None and command[0] in {"seqgate serve", "stop-gateway"}
        if not self._had_gateway and not starts and NEEDS_GATEWAY.search(text):
            self._run(f"seqgate serve --listen {LISTENS} --data-dir {shlex.quote(str(self.home / 'data'))}")
            self._had_gateway = True
        self._had_gateway = self._had_gateway or starts

    def _run(self, script: str) -> str:
        self._blocks += 1
        path = self.directory / f"block-{self._blocks}.sh"
        path.write_text(
            REFUSED.sub(r"if \g<command>; then echo was not refused; false; fi", self.own(script))
        )
        return self._do(path)

    def _do(self, script: Path) -> str:
        """Read a script into the terminal's bash; wait for its end, and return its output."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        output = script.with_suffix(".out")
        file = shlex.quote(str(script))
        # A script that fails ends bash; then the line is missing, and the pipe has an end.
        self._bash.stdin.write(f". {file} > {shlex.quote(str(output))} 2>&1 < /dev/null\necho done\n")
        self._bash.stdin.flush()
        readable, _, _ = select.select([self._bash.stdout], [], [], LIMIT_S)
        line = self._bash.stdout.readline() if readable else f"no end after {LIMIT_S} s"
        text = output.read_text(errors="replace") if output.exists() else ""
        if line != "done\n":
            raise Failed(f"{line}\n{text}".strip())
        return text

    def close(self) -> None:
        """End bash and everything that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait()
        for pipe in (self._bash.stdin, self._bash.stdout):
            with suppress(BrokenPipeError):
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
