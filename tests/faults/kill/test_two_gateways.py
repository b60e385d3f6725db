"""Two gateways on one data directory: the second exits with an error message, the first continues."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.gateway_process import REPOSITORY, GatewayProcess, free_port
from tests.support.wire import Wire

REFUSAL_TIMEOUT_S = 120


def _start_second(data_dir: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "seqgate", "serve", "--listen", f"127.0.0.1:{free_port()}"]
    return subprocess.run(
        [*command, "--data-dir", str(data_dir)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=REFUSAL_TIMEOUT_S,
        check=False,
    )


def _files(data_dir: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(data_dir.rglob("*")) if path.is_file()}


def test_the_second_gateway_refuses(gateway: GatewayProcess) -> None:
    before = _files(gateway.data_dir)
    second = _start_second(gateway.data_dir)
    assert second.returncode not in {0, -6, -11}
    assert "ready" not in second.stdout
    assert str(gateway.data_dir) in second.stderr
    assert "Traceback" not in second.stderr
    assert _files(gateway.data_dir) == before
    with Wire(gateway.bootstrap) as wire:
        answer = wire.call("api_versions", 3, client_software_name="test", client_software_version="1")
    assert answer.fields["error_code"] == 0


def test_the_directory_is_free_after_a_kill(gateway: GatewayProcess) -> None:
    gateway.restart(kill=True)
    assert _start_second(gateway.data_dir).returncode != 0
    with Wire(gateway.bootstrap) as wire:
        answer = wire.call("metadata", 12, topics=None, allow_auto_topic_creation=False)
    assert answer.fields["cluster_id"]
