"""A gateway loads what answers commands soon after its start, so that an upgrade of the package under it changes none of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os, signal, sys
from gateway import running
from gateway.config import load_config

MODULE = "gateway.admin.answering"
assert MODULE not in sys.modules, "a start needs no command"
running.COMMANDS_LOADED_AFTER_S = 0.0
load_commands = running.load_commands

def load_and_stop():
    load_commands()
    assert MODULE in sys.modules
    print("loaded", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

running.load_commands = load_and_stop
running.run(load_config(overrides=[f"log.dirs={sys.argv[1]}", "listeners=PLAINTEXT://127.0.0.1:0"]))
"""


def test_what_answers_commands_is_loaded_before_the_first_one(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "loaded"
