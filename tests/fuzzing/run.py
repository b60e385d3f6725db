"""Runs several targets guided by coverage, one process after the other, and collects the results."""

from __future__ import annotations

import os
import platform
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzzing import corpus

ROOT = Path(__file__).parents[2]
CRASHES_PER_TARGET = 5
"""After this many crashes a target ends, because further crashes mostly repeat earlier ones."""
LEAST_SECONDS = 1
UNLIMITED = -1
"""The value that tells libFuzzer not to limit the number of inputs."""
START_S = 120
"""A process that runs this long beyond its time is stuck. libFuzzer itself ends any input after a minute."""
COUNTS = struct.Struct("<qq")
"""The file with the number of inputs and bytes, which the feeding process leaves behind."""
HAS_WHEELS = sys.platform == "linux" and platform.machine() == "x86_64" and sys.version_info < (3, 15)
"""Whether atheris has a wheel for this Python and machine; then it must be installed."""
TELLS_WHERE = signal.SIGUSR2
"""The signal that makes the process print the stack of each thread."""
DYING_S = 30
_REACHED = re.compile(r" cov: (\d+) ft: (\d+) ")


@dataclass
class Outcome:
    """The counts, and a sentence for each breach."""

    counts: Counter[str] = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)


def fuzz(
    names: Sequence[str],
    seconds: float,
    seed: int,
    *,
    inputs: Mapping[str, int] | None = None,
    keep: bool = False,
) -> Outcome:
    """Fuzz each target for its share of the time, or until the number of `inputs` is reached.

    The same seed tries the same inputs, as far as the time allows.
    """
    outcome = Outcome(Counter(targets=0, inputs=0, bytes_fuzzed=0, edges=0, features=0, crashes=0))
    for name in names:
        with tempfile.TemporaryDirectory(prefix="seqgate-fuzzing-") as directory:
            most = (inputs or {}).get(name, UNLIMITED)
            _fuzz_target(name, seconds / len(names), most, seed, Path(directory), outcome)
            if keep:
                from tests.fuzzing.keeping import keep_fewest

                keep_fewest(name, sorted((Path(directory) / "found").iterdir()))
    return outcome


def _fuzz_target(
    name: str, seconds: float, most_inputs: int, seed: int, directory: Path, outcome: Outcome
) -> None:
    outcome.counts["targets"] += 1
    deadline = time.monotonic() + seconds
    edges = features = 0
    for attempt in range(CRASHES_PER_TARGET):
        left = max(LEAST_SECONDS, round(deadline - time.monotonic()))
        said, status = _guided(name, left, most_inputs, seed + attempt, directory)
        counts = directory / "counts"
        inputs, size_bytes = COUNTS.unpack(counts.read_bytes()) if counts.exists() else (0, 0)
        outcome.counts["inputs"] += inputs
        outcome.counts["bytes_fuzzed"] += size_bytes
        for match in _REACHED.finditer(said):
            edges, features = max(edges, int(match[1])), max(features, int(match[2]))
        if status == 0:
            break
        outcome.counts["crashes"] += 1
        outcome.breaches.append(_breach(name, seed + attempt, said, directory))
        if time.monotonic() > deadline:
            break
    outcome.counts["edges"] += edges
    outcome.counts["features"] += features
    print(f"{name}: {edges} edges, {features} features", file=sys.stderr)


def _guided(name: str, seconds: int, most_inputs: int, seed: int, directory: Path) -> tuple[str, int]:
    """Run the process; return its output and its exit status."""
    command = [sys.executable, "-m", "tests.fuzzing.guided", name, str(directory)]
    command += [f"-max_total_time={seconds}", f"-runs={most_inputs}", f"-seed={seed & 0xFFFFFFFF or 1}"]
    command += ["-reload=0"]  # when libFuzzer reloads inputs depends on the time
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
        "PYTHONHASHSEED": "0",
    }
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        said, _ = process.communicate(timeout=seconds + START_S)
    except subprocess.TimeoutExpired:
        said = _ended(process)
    return said.decode(errors="replace"), process.returncode


def _ended(process: subprocess.Popen[bytes]) -> bytes:
    """End a stuck process; return its stack traces. libFuzzer saves the input."""
    process.send_signal(TELLS_WHERE)
    process.send_signal(signal.SIGABRT)
    try:
        said, _ = process.communicate(timeout=DYING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
    return said + b"\nERROR: the process did not end"


def _breach(name: str, seed: int, said: str, directory: Path) -> str:
    print(said[-6000:], file=sys.stderr)
    crashes = sorted([*directory.glob("crash-*"), *directory.glob("timeout-*"), *directory.glob("oom-*")])
    encoded = [corpus.line_of(path.read_bytes()) for path in crashes]
    for path in crashes:
        path.unlink()
    reason = _reason(said)
    return f"{name} (seed {seed}): {reason}; input in base64: {', '.join(encoded) or 'not known'}"


def _reason(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    for position, line in enumerate(lines):
        if "Uncaught Python exception" in line and position + 1 < len(lines):
            return lines[position + 1]
    return next(
        (line for line in reversed(lines) if "ERROR" in line), lines[-1] if lines else "it ended at once"
    )
