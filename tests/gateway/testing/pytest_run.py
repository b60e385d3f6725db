"""Runs pytest on files of an imagined user, in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.gateway_process import SOURCES

LIMIT_S = 120


def run_pytest(
    directory: Path, files: Mapping[str, str], options: Sequence[str] = (), *, installed: bool = False
) -> tuple[dict[str, int], str]:
    """Write `files` and run pytest; return how many tests had which outcome, and all that pytest printed.

    The plugin is named by an option. With `installed` pytest finds it by its entry point, as after `pip
    install seqgate`.
    """
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    paths = [str(SOURCES)]
    # this environment may have the entry point, too
    named = ["-p", "no:seqgate", "-p", "seqgate.gateway.pytest_plugin"]
    if installed:
        paths.append(str(_installed(directory / "site")))
        named: list[str] = []
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *named, *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    output = done.stdout + done.stderr
    return {
        word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|errors?|skipped)", done.stdout)
    }, output


def _installed(site: Path) -> Path:
    """Return a directory in which pytest finds the entry point of the plugin."""
    information = site / "seqgate-0.dist-info"
    information.mkdir(parents=True, exist_ok=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: seqgate\nVersion: 0\n")
    (information / "entry_points.txt").write_text("[pytest11]\nseqgate = seqgate.gateway.pytest_plugin\n")
    return site
