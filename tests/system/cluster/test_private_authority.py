"""A gateway whose store has a certificate of a private authority serves with the authority's file, and is
refused without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.certificates import Authority
from tests.support.gateway_process import GatewayProcess
from tests.support.object_stores import ACCESS_KEY, BUCKET, SECRET_KEY, MotoServer, Versitygw
from tests.support.setup_peers import versitygw_program

TIMEOUT_S = 60.0
KEYS = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
CLUSTER = f"s3://{BUCKET}/orders"
SENTENCE = "no authority that is trusted has signed the store's certificate; name a file with the authority's certificate (PEM) by "


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("Private")


@pytest.fixture(scope="module")
def store(authority: Authority) -> Iterator[MotoServer | Versitygw]:
    with (Versitygw if versitygw_program() else MotoServer)(authority.listener()) as server:
        yield server


def test_records_go_to_the_bucket_and_come_back(
    store: MotoServer | Versitygw, authority: Authority, tmp_path: Path
) -> None:
    settings = {
        "seqgate.cluster": CLUSTER,
        "seqgate.cluster.endpoint": store.endpoint,
        "seqgate.cluster.ca.file": str(authority.write(tmp_path / "ca.pem")),
    }
    with GatewayProcess(tmp_path / "cache", settings=settings, environment=KEYS) as gateway:
        producer = Producer({"bootstrap.servers": gateway.bootstrap, "enable.idempotence": True})
        producer.produce("orders", b"the record", partition=0)
        assert producer.flush(TIMEOUT_S) == 0
    variables = KEYS | {"AWS_CA_BUNDLE": str(tmp_path / "ca.pem")}
    del settings["seqgate.cluster.ca.file"]
    with GatewayProcess(tmp_path / "another", settings=settings, environment=variables) as gateway:
        consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "reader"})
        consumer.assign([TopicPartition("orders", 0, 0)])
        message = consumer.poll(TIMEOUT_S)
        consumer.close()
        assert message is not None
        assert message.value() == b"the record"


@pytest.mark.parametrize("has_file", [True, False], ids=["another authority", "no file"])
def test_a_start_without_the_authority_is_refused(
    store: MotoServer | Versitygw, tmp_path: Path, has_file: bool
) -> None:
    ca_file = Authority("Other").write(tmp_path / "ca.pem") if has_file else None
    arguments = ["serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "cache")]
    code, sentence = end_of(arguments, store.endpoint, ca_file)
    assert code == 1
    assert sentence.startswith(f"seqgate: the cluster {CLUSTER} can't be used: {CLUSTER}/probe/")
    assert SENTENCE in sentence


@pytest.mark.parametrize("command", ["status", "verify"])
def test_commands_are_refused_too(store: MotoServer | Versitygw, command: str) -> None:
    code, sentence = end_of(["cluster", command], store.endpoint, None)
    assert code == 1
    assert SENTENCE in sentence


def end_of(arguments: list[str], endpoint: str, ca_file: Path | None) -> tuple[int, str]:
    """Run a command that fails; return its exit code and its last line on stderr."""
    command = [sys.executable, "-m", "seqgate", *arguments, "--cluster", CLUSTER]
    command += ["--set", f"seqgate.cluster.endpoint={endpoint}"]
    if ca_file is not None:
        command += ["--set", f"seqgate.cluster.ca.file={ca_file}"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=os.environ | KEYS
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr.splitlines()[-1]
