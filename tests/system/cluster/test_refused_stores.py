"""A gateway whose store refuses it ends with exit code 1 and one sentence; one whose store is away waits for
it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fault_proxy import Answer, FaultProxy
from tests.support.gateway_process import GatewayProcess
from tests.support.object_stores import ACCESS_KEY, BUCKET, SECRET_KEY, MotoServer

TIMEOUT_S = 60.0
KEYS = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}


@pytest.fixture(scope="module")
def store() -> Iterator[MotoServer]:
    with MotoServer() as server:
        yield server


def end_of(cluster: str, endpoint: str, tmp_path: Path) -> tuple[int, str]:
    """Run a gateway that can't start; return its exit code and its last line on stderr."""
    command = [sys.executable, "-m", "seqgate", "serve", "--listen", "127.0.0.1:0", "--cluster", cluster]
    command += ["--data-dir", str(tmp_path / "cache"), "--set", f"seqgate.cluster.endpoint={endpoint}"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=os.environ | KEYS
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr.splitlines()[-1]


def test_no_such_bucket(store: MotoServer, tmp_path: Path) -> None:
    code, sentence = end_of("s3://nosuchbucket/orders", store.endpoint, tmp_path)
    assert code == 1
    assert sentence.startswith(
        "seqgate: the cluster s3://nosuchbucket/orders can't be used: s3://nosuchbucket/orders/probe/"
    )
    assert (
        ": the bucket does not exist; create it, or correct seqgate.cluster (the store answered 404 "
        in sentence
    )


def test_access_denied(tmp_path: Path) -> None:
    with FaultProxy(upstream=1) as refusing:
        refusing.plan("PUT", *[Answer.error("403 Forbidden", "AccessDenied", "Access Denied")] * 40)
        refusing.plan("DELETE", *[Answer.error("403 Forbidden", "AccessDenied", "Access Denied")] * 40)
        code, sentence = end_of(f"s3://{BUCKET}/orders", f"http://127.0.0.1:{refusing.port}", tmp_path)
    assert code == 1
    assert (
        "the store denies access; grant the access key s3:GetObject, s3:PutObject and s3:DeleteObject"
        in sentence
    )


def test_a_store_without_conditional_writes(tmp_path: Path) -> None:
    with FaultProxy(upstream=1) as careless:
        careless.plan("PUT", *[Answer("200 OK", headers=("ETag: x",))] * 16)
        code, sentence = end_of(f"s3://{BUCKET}/orders", f"http://127.0.0.1:{careless.port}", tmp_path)
    assert code == 1
    assert sentence == (
        "seqgate: the cluster s3://seqgate/orders can't be used: of 16 creations of one object, the store "
        "carried out 16 instead of 1; "
        "use a store with conditional writes (If-None-Match, If-Match) that hold among many writers"
    )


def test_no_such_directory(tmp_path: Path) -> None:
    code, sentence = end_of(f"file://{tmp_path}/nowhere", "http://unused:1", tmp_path)
    assert code == 1
    assert sentence == (
        f"seqgate: the cluster file://{tmp_path}/nowhere can't be used: {tmp_path}/nowhere is no directory; "
        "create it, or mount the file system that holds it"
    )


def test_a_start_waits_for_a_store_that_fails(store: MotoServer, tmp_path: Path) -> None:
    with FaultProxy(store.port) as proxy:
        proxy.plan("PUT", *[Answer.error("503 Slow Down", "SlowDown")] * 16)
        proxy.plan("GET", Answer.error("503 Slow Down", "SlowDown"))
        gateway = GatewayProcess(
            tmp_path / "cache",
            settings={
                "seqgate.cluster": f"s3://{BUCKET}/waited",
                "seqgate.cluster.endpoint": f"http://127.0.0.1:{proxy.port}",
            },
            environment=KEYS,
        )
        gateway.start()
        try:
            assert "The object store is checked again, because a call failed: s3://" in gateway.stderr_text()
        finally:
            gateway.stop()
        assert gateway.stderr_text().count("Traceback") == 0


def test_a_start_that_waits_for_its_store_can_be_stopped(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "seqgate",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--cluster",
        "s3://away/x",
    ]
    command += ["--data-dir", str(tmp_path / "cache"), "--set", "seqgate.cluster.endpoint=http://127.0.0.1:1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | KEYS) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        process.terminate()
        try:
            assert process.wait(TIMEOUT_S) == 0
        finally:
            process.kill()
        assert "The object store is checked again, because a call failed: s3://away/x/" in first
        assert "Traceback" not in process.stderr.read()
