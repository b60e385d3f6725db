"""A gateway's end by signals, as a service manager or a person at a terminal sends them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.gateway_process import GatewayProcess


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_is_sent_again_until_the_end_leaves_the_exit_code_at_0(
    tmp_path: Path, number: signal.Signals
) -> None:
    gateway = GatewayProcess(tmp_path / "data").start()
    while os.waitid(os.P_PID, gateway.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        os.kill(gateway.pid, number)
    gateway.stop()
    assert "Traceback" not in gateway.stderr_text()
