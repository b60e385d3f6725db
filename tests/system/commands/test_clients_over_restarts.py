"""Who a producer's client was, and the verdicts, as commands and the console tell them after restarts."""

from __future__ import annotations

import json
import stat
import urllib.request
from pathlib import Path
from typing import Any

import confluent_kafka

from examples.demo.proxy import Fault, LossyProxy
from tests.support.console_process import console_process
from tests.support.gateway_cluster import await_true
from tests.support.gateway_process import GatewayProcess
from tests.system.commands.clients import create_topic
from tests.system.commands.conftest import seqgate

TIMEOUT_S = 120
SAVED_OFTEN = {
    "log.flush.offset.checkpoint.interval.ms": "50",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}


class Application:
    """An application behind a proxy that loses acknowledgements, with an open transaction beside."""

    def __init__(self, gateway: GatewayProcess, proxy: LossyProxy) -> None:
        self._proxy = proxy
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": proxy.address,
                "client.id": "checkout-service",
                "enable.idempotence": True,
                "linger.ms": 0,
                "logger": None,
            }
        )
        self._transactional = confluent_kafka.Producer(
            {
                "bootstrap.servers": gateway.bootstrap,
                "client.id": "billing",
                "transactional.id": "invoices",
                "transaction.timeout.ms": 600_000,
            }
        )

    def begin(self) -> None:
        self._transactional.init_transactions(TIMEOUT_S)
        self._transactional.begin_transaction()
        self._transactional.produce("invoices", b"1", partition=0)
        assert self._transactional.flush(TIMEOUT_S) == 0

    def write(self) -> None:
        """Write until a batch was sent twice."""
        faults = self._proxy.report.faults
        lost = faults[Fault.LOSE_ACKNOWLEDGEMENT]
        while faults[Fault.LOSE_ACKNOWLEDGEMENT] == lost:
            self._producer.produce("orders", b"1", partition=0)
            assert self._producer.flush(TIMEOUT_S) == 0


def shown(gateway: GatewayProcess, console: str) -> None:
    """Check that each way of asking names the clients: the commands of both kinds, and the console."""
    for reach in (("--data-dir", gateway.data_dir), ("--bootstrap", gateway.bootstrap)):
        found = named(seqgate("producers", *reach, "--json").json["producers"], "topic")
        assert found == {"orders": "checkout-service", "invoices": "billing"}
        transactions = seqgate("transactions", "list", *reach, "--json").json["transactions"]
        assert named(transactions, "transactional_id") == {"invoices": "billing"}
    for page in ("/producers?topic=orders&partition=0", "/transactions"):
        with urllib.request.urlopen(console + page, timeout=TIMEOUT_S) as answer:
            client_id = "checkout-service" if "orders" in page else "billing"
            assert f"{client_id} (127.0.0.1, confluent-kafka-python " in answer.read().decode(), page


def named(rows: list[dict[str, Any]], key: str) -> dict[str, str]:
    """Return the client ids by another column, of rows that tell the rest of the client, too."""
    for row in rows:
        assert row["client"]["address"] == "127.0.0.1"
        assert row["client"]["library"].startswith("confluent-kafka-python ")
    return {row[key]: row["client"]["client_id"] for row in rows}


def verdicts(gateway: GatewayProcess) -> list[dict[str, Any]]:
    """Return the verdicts, the newest first, once the file has the newest."""
    rows: list[dict[str, Any]] = seqgate("verdicts", "--data-dir", gateway.data_dir, "--json").json[
        "verdicts"
    ]
    kept = gateway.data_dir / "producer-clients"

    def is_kept() -> bool:
        newest = json.loads(kept.read_bytes())["verdicts"][-1:] if kept.exists() else []
        return [row[1][0] for row in newest] == [rows[0]["number"]]

    await_true(is_kept, "the file has the newest verdict", TIMEOUT_S)
    assert {row["client"]["client_id"] for row in rows} == {"checkout-service"}
    return [{name: value for name, value in row.items() if name != "number"} for row in rows]


def test_clients_have_names_after_a_kill_a_stop_and_a_restart_and_verdicts_are_there(tmp_path: Path) -> None:
    with (
        GatewayProcess(tmp_path / "data", settings=SAVED_OFTEN) as gateway,
        LossyProxy(("127.0.0.1", gateway.port), fault_rate=0.3, seed=7) as proxy,
        console_process(tmp_path, gateway.bootstrap) as console,
    ):
        for topic in ("orders", "invoices"):
            create_topic(gateway.bootstrap, topic, 1)
        application = Application(gateway, proxy)
        application.begin()
        application.write()
        told = verdicts(gateway)
        assert {row["outcome"] for row in told} == {"duplicate"}
        shown(gateway, console)
        kept = gateway.data_dir / "producer-clients"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        for restart in (
            lambda: gateway.restart(kill=True),
            gateway.restart,
            lambda: seqgate("restart", "--data-dir", gateway.data_dir),
        ):
            restart()
            # nobody has sent a batch to the new process
            assert verdicts(gateway) == told
            shown(gateway, console)
            application.write()
            newer = verdicts(gateway)
            assert (len(newer) > len(told), newer[-len(told) :]) == (True, told)
            told = newer
