"""A gateway loads what answers commands soon after its start, so that an upgrade of the package under it changes none of it.
Before that it loads only what a start needs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.gateway_process import AS_INSTALLED

SCRIPT = """
import os, signal, sys
from seqgate.gateway import running
from seqgate.gateway.config import load_config

MODULE = "seqgate.gateway.admin.operations"
NEEDLESS = {"argparse", "email", "importlib.metadata", "zipfile"}
assert MODULE not in sys.modules, "a start needs no command"
running.COMMANDS_LOADED_AFTER_S = 0.0
load_commands = running.load_commands

def load_and_stop():
    print("needless:", sorted(NEEDLESS & set(sys.modules)))
    load_commands()
    assert MODULE in sys.modules
    print("loaded", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

running.load_commands = load_and_stop
running.run(load_config(overrides=[f"log.dirs={sys.argv[1]}", "listeners=PLAINTEXT://127.0.0.1:0"]))
"""


def test_what_answers_commands_is_loaded_before_the_first_one(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    path = os.pathsep.join([str(AS_INSTALLED), *sys.path])
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    *_, needless, loaded = done.stdout.splitlines()
    assert needless == "needless: []", "they belong to the package of CRC-32C"
    assert loaded == "loaded"
