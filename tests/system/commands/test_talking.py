"""A command that waits says on stderr what is wrong, and one that ends says what it did."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.gateway_process import SOURCES, GatewayProcess

WAIT_S = 120.0


@contextmanager
def command(bootstrap: str, *words: str, stdin: int = subprocess.PIPE) -> Iterator[subprocess.Popen[str]]:
    """Run a command for the cluster that SEQGATE_BOOTSTRAP names, in a directory without data."""
    with subprocess.Popen(
        [sys.executable, "-m", "seqgate", *words],
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(SOURCES), "SEQGATE_BOOTSTRAP": bootstrap},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def say(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def heard(process: subprocess.Popen[str]) -> str:
    """Return the next line on stderr."""
    assert process.stderr is not None
    return process.stderr.readline().rstrip("\n")


def stored(gateway: GatewayProcess, topic: str) -> list[str]:
    with command(gateway.bootstrap, "consume", topic) as reading:
        told, wrong = reading.communicate(timeout=WAIT_S)
    assert (reading.returncode, wrong) == (0, "")
    return told.splitlines()


def topics(gateway: GatewayProcess) -> str:
    with command(gateway.bootstrap, "topics", "list", "--json") as listing:
        return listing.communicate(timeout=WAIT_S)[0]


def test_produce_and_consume_say_that_the_gateway_is_lost(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "data") as gateway:
        here = gateway.bootstrap
        with command(here, "produce", "talk", "--create") as producing:
            say(producing, "before")
            while "talk" not in topics(gateway):
                pass
            with command(here, "consume", "talk", "--follow") as following:
                assert following.stdout is not None
                assert following.stdout.readline() == "before\n"
                gateway.kill()
                lost = f"seqgate: lost {here} (connection refused); still trying"
                assert heard(following) == lost
                # The producer says so although nobody gives it a line.
                assert heard(producing) == lost
                say(producing, "meanwhile")
                gateway.start()
                assert heard(producing) == f"seqgate: {here} works again"
                assert following.stdout.readline() == "meanwhile\n"
                following.send_signal(signal.SIGINT)
                assert following.wait(WAIT_S) == 0
            told, _ = producing.communicate(timeout=WAIT_S)
            assert (producing.returncode, told) == (
                0,
                "2 records stored in talk: partition 0 from offset 0 to 1.\n",
            )


def test_ctrl_c_says_what_is_stored(gateway: GatewayProcess) -> None:
    terminal, keyboard = pty.openpty()
    try:
        with command(gateway.bootstrap, "produce", "typed", "--create", stdin=keyboard) as producing:
            assert heard(producing) == "seqgate: each line is a record of typed; Ctrl-D ends"
            os.write(terminal, b"one\ntwo\n")
            while stored(gateway, "typed") != ["one", "two"]:
                pass
            producing.send_signal(signal.SIGINT)
            told = "seqgate: interrupted. 2 records stored in typed: partition 0 from offset 0 to 1."
            assert heard(producing) == told
            assert producing.wait(WAIT_S) == 130
        with command(gateway.bootstrap, "produce", "typed", stdin=keyboard) as producing:
            heard(producing)
            os.write(terminal, b"three\n\x04")
            assert producing.wait(WAIT_S) == 0
        assert stored(gateway, "typed") == ["one", "two", "three"]
    finally:
        os.close(terminal)
        os.close(keyboard)
