"""The first use of an installed wheel: a gateway serves a client of the same Python, stops, and still has
everything.
"""

from __future__ import annotations

import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.request import ProxyHandler, build_opener

from tests.release.commands import LIMIT_S, run
from tests.release.installed import Installed
from tests.support.gateway_process import free_port

CLIENT: Final = Path(__file__).with_name("client.py")
RECORDS: Final = 500


def smoke(installed: Installed, folder: Path, version: str) -> None:
    """Use an installed wheel; `version` is what it says of itself. Raises AssertionError with the output of
    what failed.
    """
    assert installed.run("--version", cwd=folder) == f"seqgate {version}\n"
    metrics = f"127.0.0.1:{free_port()}"
    with serving(installed, folder, metrics) as address:
        client(installed, "write", address, folder)
        client(installed, "read", address, folder)
        with build_opener(ProxyHandler({})).open(f"http://{metrics}/readyz", timeout=LIMIT_S) as answer:
            assert answer.status == 200
        assert address in installed.run("status", "--data-dir", folder / "data", cwd=folder)
    with serving(installed, folder, metrics) as address:
        client(installed, "read", address, folder)


def client(installed: Installed, what: str, address: str, folder: Path) -> None:
    """Run the client under the installed Python. -P keeps the folder of the program off the path."""
    run(installed.python, "-P", CLIENT, what, address, str(RECORDS), cwd=folder, path=installed.path)


@contextmanager
def serving(installed: Installed, folder: Path, metrics: str) -> Iterator[str]:
    """Run the installed gateway and give its address; the end is a clean stop. Raises AssertionError."""
    address = f"127.0.0.1:{free_port()}"
    words = [
        "serve",
        "--listen",
        address,
        "--data-dir",
        "data",
        "--set",
        f"seqgate.metrics.listener={metrics}",
    ]
    words += ["--set", "group.initial.rebalance.delay.ms=0"]
    with (folder / "log").open("a") as log:
        gateway = installed.start(*words, cwd=folder, stderr=log)
    try:
        await_ready(gateway, address, folder / "log")
        yield address
        gateway.send_signal(signal.SIGTERM)
        gateway.communicate(timeout=LIMIT_S)
        assert gateway.returncode == 0, (folder / "log").read_text()
    finally:
        gateway.kill()
        gateway.communicate()


def await_ready(gateway: subprocess.Popen[str], address: str, log: Path) -> None:
    """Wait for the line that says the gateway serves. Raises AssertionError with its log."""
    assert gateway.stdout is not None
    readable = select.select([gateway.stdout], [], [], LIMIT_S)[0]
    line = gateway.stdout.readline() if readable else ""
    assert line.startswith(f"seqgate ready on {address}"), line + log.read_text()
