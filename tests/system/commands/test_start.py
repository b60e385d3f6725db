"""How the `seqgate` process starts: which packages it needs, also beside packages of others that have the
names of its folders.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.gateway_process import SOURCES, GatewayProcess

UNUSED = {
    "typer",
    "click",
    "rich",
    "pydantic",
    "kafka",
    "seqgate.gateway.admin.help",
    "redis",
    "seqgate.gateway.config.kept_brokers",
}
"""The modules that a gateway must not import when it serves, because only commands or certain settings need
them.
"""


def test_serve_imports_only_what_a_gateway_needs(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "data", environment={"PYTHONPROFILEIMPORTTIME": "1"}) as gateway:
        lines = gateway.stderr_text().splitlines()
    imported = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    assert {"seqgate.gateway.gateway", "uvloop"} <= imported
    assert UNUSED & imported == set()


def test_packages_with_the_names_of_its_folders_hide_nothing(gateway: GatewayProcess, tmp_path: Path) -> None:
    for name in ("gateway/__init__.py", "log.py", "metadata.py", "seq_validator/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("raise RuntimeError\n")
    done = subprocess.run(
        [sys.executable, "-m", "seqgate", "status", "--data-dir", str(gateway.data_dir)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert gateway.bootstrap in done.stdout


def test_errors_of_serve_are_the_same_with_and_without_typer(tmp_path: Path) -> None:
    def run(start: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", f"from seqgate.gateway import cli; cli.{start}", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
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
        quick, whole = run("main()", "serve", *options), run("app(prog_name='seqgate')", "serve", *options)
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
