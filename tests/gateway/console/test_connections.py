"""The connections of the console to the cluster, and what it says while there is none."""

from __future__ import annotations

from tests.support.console_client import console_client, text_of
from tests.support.gateway_process import GatewayProcess
from tests.system.commands.conftest import seqgate


def test_pages_work_again_after_a_restart_of_the_gateway(gateway: GatewayProcess) -> None:
    seqgate("topics", "create", "kept", "--bootstrap", gateway.bootstrap)
    with console_client(gateway.bootstrap) as console:
        assert "retention.ms" in text_of(console.page("/topics/kept/settings"))
        gateway.stop()
        assert "did not answer" in text_of(console.page("/topics/kept/settings"))
        assert "did not answer" in text_of(console.page("/"))
        gateway.start()
        assert "retention.ms" in text_of(console.page("/topics/kept/settings"))
        console.confirmed("/topics/kept/partitions", {"partitions": "2"})
        assert "Nothing is wrong" in text_of(console.page("/"))


def test_a_cluster_that_is_not_there_is_told_with_what_to_do() -> None:
    with console_client("127.0.0.1:1") as console:
        for path in ("/", "/topics", "/records/orders", "/login"):
            assert "start a gateway there" in text_of(console.page(path))
        assert "start a gateway there" in console.data("/api/figures", status=400)["error"]
