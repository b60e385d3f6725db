"""The witness of a takeover sees what a gateway acknowledges."""

from __future__ import annotations

import os
import signal

from tests.faults.processes import witness
from tests.faults.processes.witness import Witness
from tests.support.gateway_process import GatewayProcess


def test_a_gateway_that_acknowledges_is_found(gateway: GatewayProcess) -> None:
    witness.prepare(gateway.bootstrap)
    with Witness(gateway.bootstrap) as stayed:
        stayed.ask()
        assert [breach.rpartition(" ")[2] for breach in stayed.breaches()] == [
            "produce",
            "offset_commit",
            "end_txn",
        ]
    assert "a gateway that was taken over committed b'before the stop'" in witness.found_of(gateway.bootstrap)


def test_a_gateway_that_ends_is_believed(gateway: GatewayProcess) -> None:
    witness.prepare(gateway.bootstrap)
    with Witness(gateway.bootstrap) as stayed:
        os.kill(gateway.pid, signal.SIGSTOP)
        stayed.ask()
        gateway.kill()
        assert stayed.breaches() == []
    gateway.start()
    assert witness.found_of(gateway.bootstrap) == []
