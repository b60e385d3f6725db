"""Earlier lines of Kafka's Java client do what they always did: 2.8, the oldest with which Kafka 4 promises to
work fully, and the one before the present.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_tools import java_command
from tests.support.setup_peers import EARLIER_CLIENTS, earlier_client_libs

TIMEOUT_S = 600.0
SOURCE = Path(__file__).with_name("EarlierClient.java")


@pytest.mark.parametrize("line", EARLIER_CLIENTS)
def test_an_earlier_client_writes_and_reads(shared_gateway: GatewayProcess, line: str) -> None:
    command = java_command(str(SOURCE), first_jars=earlier_client_libs(line))
    done = subprocess.run(
        [*command, shared_gateway.bootstrap, f"of-client-{line}"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    version, *rest = done.stdout.splitlines()
    assert version.startswith(f"client {line}.")
    assert rest == ["read 2000", "then 0", "partitions 2"]
