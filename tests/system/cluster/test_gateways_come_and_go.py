"""Gateways in processes of their own that are killed, stopped and restarted while an unmodified client
writes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.support.gateway_cluster import (
    NEVER_ENDING_LEASE_MS,
    PARTITIONS,
    GatewayCluster,
    Writer,
    await_true,
    check,
)
from tests.support.gateway_process import GatewayProcess
from tests.system.workers.scene import seqgate

UNHURRIED = {"seqgate.cluster.lease.ms": str(NEVER_ENDING_LEASE_MS)}


@pytest.mark.tier("test")
def test_partitions_of_a_killed_gateway_are_led_by_the_others(tmp_path: Path) -> None:
    with GatewayCluster(tmp_path, 3) as cluster:
        cluster.create()
        await_true(lambda: sorted(cluster.leaders().values()) == [2, 2, 2], "leaders are spread evenly")
        with Writer(cluster.bootstrap) as writer:
            writer.await_more()
            killed = cluster.gateways.pop(0)
            killed.kill()
            await_true(
                lambda: len(cluster.leaders()) == 2 and -1 not in cluster.leaders(), "two gateways lead"
            )
            writer.await_more()
            killed.start()
            cluster.gateways.append(killed)
            await_true(lambda: sorted(cluster.leaders().values()) == [2, 2, 2], "leaders are spread again")
            writer.await_more()
        check(writer, cluster.bootstrap)


def test_a_gateway_that_stood_still_serves_nothing_and_ends(tmp_path: Path) -> None:
    with GatewayCluster(tmp_path, 2) as cluster:
        cluster.create()
        with Writer(cluster.bootstrap) as writer:
            writer.await_more()
            stopped = cluster.gateways.pop(0)
            os.kill(stopped.pid, signal.SIGSTOP)
            await_true(
                lambda: cluster.leaders() and len(cluster.leaders()) == 1 and -1 not in cluster.leaders(),
                "one gateway leads everything",
            )
            writer.await_more()
            os.kill(stopped.pid, signal.SIGCONT)
            assert stopped.await_end() == 1
            assert "the gateway stops: its session has ended" in stopped.stderr_text()
            writer.await_more()
        check(writer, cluster.bootstrap)


def stop_and_start(gateway: GatewayProcess) -> None:
    gateway.restart()


def replace_the_process(gateway: GatewayProcess) -> None:
    assert seqgate(gateway.data_dir, "restart").startswith("Restarted: ")


@pytest.mark.parametrize("restart", [stop_and_start, replace_the_process])
def test_a_rolling_restart_loses_nothing_and_ends_even(
    tmp_path: Path, restart: Callable[[GatewayProcess], None]
) -> None:
    with GatewayCluster(tmp_path, 3, UNHURRIED) as cluster:
        cluster.create()
        with Writer(cluster.bootstrap) as writer:
            for gateway in list(cluster.gateways):
                writer.await_more()
                restart(gateway)
                await_true(lambda: len(cluster.brokers()) == 3, "three gateways are live")
            await_true(lambda: sorted(cluster.leaders().values()) == [2, 2, 2], "leaders are spread evenly")
            writer.await_more()
        check(writer, cluster.bootstrap)
        assert sorted(cluster.brokers().values()) == [1, 2, 3]


@pytest.mark.tier("test")
def test_a_clean_stop_hands_over_without_waiting_for_a_lease(tmp_path: Path) -> None:
    with GatewayCluster(tmp_path, 2, UNHURRIED) as cluster:
        cluster.create()
        with Writer(cluster.bootstrap) as writer:
            writer.await_more()
            boundaries = tmp_path / "bucket" / "wal"
            assert not list(boundaries.glob("*/*/boundary"))
            cluster.gateways.pop(0).stop()
            (boundary,) = boundaries.glob("*/*/boundary")
            assert msgspec.json.decode(boundary.read_bytes())["boundary"] > 0
            await_true(
                lambda: list(cluster.leaders().values()) == [PARTITIONS] and -1 not in cluster.leaders(),
                "the other gateway leads everything",
                30.0,
            )
            writer.await_more()
        check(writer, cluster.bootstrap)
