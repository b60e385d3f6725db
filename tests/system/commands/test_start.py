"""How the `seqgate` process starts: which packages it needs, and packages of others that have the names of Seqgate's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.gateway_process import REPOSITORY, GatewayProcess

UNUSED = {
    "typer",
    "click",
    "rich",
    "pydantic",
    "kafka",
    "seqgate.gateway.cli",
    "seqgate.gateway.demo",
    "redis",
    "seqgate.gateway.config.kept_brokers",
}
"""The modules that a gateway must not import when it serves, because only commands or certain settings need them."""


def test_serve_imports_only_what_a_gateway_needs(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "data", environment={"PYTHONPROFILEIMPORTTIME": "1"}) as gateway:
        lines = gateway.stderr_text().splitlines()
    imported = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    assert {"seqgate.gateway.gateway", "uvloop"} <= imported
    assert UNUSED & imported == set()


@pytest.mark.parametrize("words", [["serve"], ["status"]], ids=" ".join)
@pytest.mark.parametrize("hiding", ["log.py", "log/__init__.py", "seq_validator/__init__.py"])
def test_a_hidden_package_is_told_in_one_sentence(tmp_path: Path, words: list[str], hiding: str) -> None:
    (tmp_path / hiding).parent.mkdir(exist_ok=True)
    (tmp_path / hiding).write_text("raise RuntimeError\n")
    done = subprocess.run(
        [sys.executable, "-m", "seqgate.gateway", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    name = hiding.partition("/")[0].removesuffix(".py")
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"seqgate: the package {name} of Seqgate, in {REPOSITORY}, is hidden by {tmp_path / hiding}"
    )
    assert done.stderr.count("\n") == 1


def test_errors_of_serve_are_the_same_with_and_without_typer(tmp_path: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", f"from gateway.{words[0]} import main; main()", *words[1:]],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    for options in (
        ["--listen", "127.0.0.1"],
        ["--set", "node.id=x"],
        ["--set", "no.such=1"],
        ["--nonsense"],
        ["-h"],
    ):
        quick, whole = run("entry", "serve", *options), run("cli", "serve", *options)
        assert (quick.returncode, quick.stdout, quick.stderr) == (
            whole.returncode,
            whole.stdout,
            whole.stderr,
        )
        assert "Traceback" not in quick.stderr
        assert quick.returncode == {"127.0.0.1": 2, "--nonsense": 2, "-h": 0}.get(options[-1], 1)


@pytest.mark.parametrize(("chosen", "used"), [(None, b"malloc"), ("pymalloc", b"pymalloc")])
def test_a_gateway_uses_the_allocator_of_the_c_library_unless_told(
    tmp_path: Path, chosen: str | None, used: bytes
) -> None:
    environment = {} if chosen is None else {"PYTHONMALLOC": chosen}
    with GatewayProcess(tmp_path / "data", environment=environment) as gateway:
        assert gateway.ready_line.endswith(f"pid {gateway.pid})")
        assert b"PYTHONMALLOC=" + used in Path(f"/proc/{gateway.pid}/environ").read_bytes().split(b"\0")


def test_ctrl_c_stops_a_gateway(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path / "data").start()
    os.kill(gateway.pid, signal.SIGINT)
    gateway.stop()
    assert "Traceback" not in gateway.stderr_text()
