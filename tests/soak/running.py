"""Runs one part of a soak as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.soak.parts import Part
from tests.soak.report import Result
from tests.support.gateway_process import REPOSITORY

LAST_LINES = 15
PATIENCE_S = 900.0
"""Seconds beyond its share of the time in which a part may finish its current work."""


def run_part(part: Part, seconds: float, seed: int, keep: Path | None) -> Result:
    """Run a part to its end. A part without a last line of JSON has failed."""
    limits = ["--seconds", f"{seconds:.0f}", "--seed", str(seed)]
    command = [sys.executable, "-m", part.module, *part.options, *limits]
    try:
        done = subprocess.run(
            command,
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=seconds + PATIENCE_S,
            check=False,
        )
        output, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        output = (error.stdout or b"").decode(errors="replace") if isinstance(error.stdout, bytes) else ""
        status = -1
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{part.name}.txt").write_text(output)
    return _result_of(part, " ".join(command[1:]), output, status)


def _result_of(part: Part, command: str, output: str, status: int) -> Result:
    for line in reversed(output.splitlines()):
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if isinstance(told, dict) and {"counts", "breaches"} <= told.keys():
            breaches = list(told["breaches"])
            if status and not breaches:
                breaches = [f"ended with {status}"]
            return Result(part.name, command, told["counts"], breaches, list(told.get("notes", ())))
    last = "\n".join(output.splitlines()[-LAST_LINES:])
    return Result(part.name, command, {}, [f"ended with {status} and printed no JSON:\n{last}"])
