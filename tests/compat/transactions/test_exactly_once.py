"""Consume, transform, produce: the output has each input record once, whichever process dies, whichever
answer is lost, and though the gateway's disk is lost when its records are durable in a bucket."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

import pytest

from examples.demo.proxy import PRODUCE, LossyProxy
from tests.compat.topics import fresh_topic
from tests.compat.transactions.copier import COPIERS, Work, transformed
from tests.compat.transactions.copying import Copying, copying, message_copier_command, python_command
from tests.faults.kill.load import fixed_port
from tests.support.gateway_process import GatewayProcess
from tests.support.seeds import chosen_seed
from tests.support.setup_peers import spark_connector_libs
from tests.tiers import in_tiers

PARTITIONS = 2
PER_ROUND = 40
ROUNDS = ("gateway", "both")
"""The process that is killed in each round, in random order."""
MORE_ROUNDS = ("gateway", "copier", "gateway", "both")
ROUNDS_ON_A_BUCKET = ("disk", "both")
FAULT_RATE = 0.04
FIND_COORDINATOR, OFFSET_FETCH, INIT_PRODUCER_ID = 10, 9, 22
ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT = 24, 25, 26, 28
LOSING = frozenset(
    {
        PRODUCE,
        OFFSET_FETCH,
        FIND_COORDINATOR,
        INIT_PRODUCER_ID,
        ADD_PARTITIONS_TO_TXN,
        ADD_OFFSETS_TO_TXN,
        END_TXN,
        TXN_OFFSET_COMMIT,
    }
)
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}


def _one_for_each_partition(first_jars: Path | None) -> Callable[[Work], list[list[str]]]:
    def commands(work: Work) -> list[list[str]]:
        return [
            message_copier_command(
                work._replace(name=f"{work.name}-{partition}"),
                *("--input-partition", str(partition)),
                first_jars=first_jars,
            )
            for partition in range(work.partitions)
        ]

    return commands


@pytest.mark.parametrize("library", in_tiers(COPIERS, test=["confluent-kafka"]))
def test_each_record_is_copied_once(tmp_path: Path, library: str) -> None:
    command = python_command(library)
    _kill_while_copying(tmp_path, lambda work: [command(work)], ROUNDS, transaction_size=7)


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("library", COPIERS)
def test_each_record_is_copied_once_in_more_rounds(tmp_path: Path, library: str) -> None:
    command = python_command(library)
    _kill_while_copying(tmp_path, lambda work: [command(work)], MORE_ROUNDS, transaction_size=7)


@pytest.mark.parametrize(
    "client", in_tiers(["of version 1", "of version 2"], test=["of version 2"], nightly=["of version 1"])
)
def test_each_record_is_copied_once_by_kafkas_message_copier(tmp_path: Path, client: str) -> None:
    commands = _one_for_each_partition(spark_connector_libs() if client == "of version 1" else None)
    # The tool counts records until the end offset, so aborted records and markers would keep it from
    # finishing.
    _kill_while_copying(tmp_path, commands, ROUNDS, transaction_size=0, of=lambda value: value)


@pytest.mark.parametrize("library", in_tiers(COPIERS, nightly=["kafka-python", "aiokafka"]))
def test_each_record_is_copied_once_though_the_disk_is_lost(tmp_path: Path, library: str) -> None:
    command = python_command(library)
    _kill_while_copying(
        tmp_path,
        lambda work: [command(work)],
        ROUNDS_ON_A_BUCKET,
        transaction_size=7,
        settings=_bucket(tmp_path),
    )


@pytest.mark.tier("nightly")
def test_each_record_is_copied_once_by_kafkas_message_copier_though_the_disk_is_lost(tmp_path: Path) -> None:
    _kill_while_copying(
        tmp_path,
        _one_for_each_partition(None),
        ROUNDS_ON_A_BUCKET,
        transaction_size=0,
        of=lambda value: value,
        settings=_bucket(tmp_path),
    )


def _bucket(directory: Path) -> dict[str, str]:
    (directory / "bucket").mkdir()
    return {
        "seqgate.cluster": f"file://{directory / 'bucket'}",
        "seqgate.cluster.puts.per.second": "200",
        "seqgate.cluster.upload.interval.ms": "300",
    }


def _kill_while_copying(
    directory: Path,
    commands: Callable[[Work], list[list[str]]],
    rounds: Sequence[str],
    *,
    transaction_size: int,
    of: Callable[[bytes], bytes] = transformed,
    settings: Mapping[str, str] | None = None,
) -> None:
    seed = chosen_seed()
    chance = Random(seed)
    chosen = SETTINGS | dict(settings or {})
    with GatewayProcess(directory / "data", settings=chosen, port=fixed_port()) as gateway:
        topics = [fresh_topic(gateway.bootstrap, name, partitions=PARTITIONS) for name in ("in", "out")]
        address = ("127.0.0.1", gateway.port)
        with LossyProxy(address, fault_rate=FAULT_RATE, seed=seed, losing=LOSING) as proxy:
            name = f"copier-{uuid.uuid4().hex[:8]}"
            work = Work(proxy.address, *topics, PARTITIONS, f"group-of-{name}", name, seed)
            with copying(gateway.bootstrap, work) as copied:
                copied.fill(PER_ROUND, transaction_size=transaction_size)
                copied.start(commands(work), directory)
                for victim in chance.sample(rounds, len(rounds)):
                    _round(copied, gateway, victim, chance, transaction_size)
                copied.expect_each_once(of)
                print(
                    f"{proxy.report.faults.total()} answers lost, {[c.starts for c in copied.copiers]} starts"
                )
        assert "Traceback" not in gateway.stderr_text()


def _round(
    copied: Copying, gateway: GatewayProcess, victim: str, chance: Random, transaction_size: int
) -> None:
    copied.await_copied(min(copied.copied + chance.randrange(PER_ROUND), copied.expected.total()))
    if victim in {"copier", "both"}:
        chance.choice(copied.copiers).kill()
    if victim in {"gateway", "both"}:
        gateway.restart(kill=True)
    elif victim == "disk":
        gateway.kill()
        shutil.rmtree(gateway.data_dir)
        gateway.start()
    copied.fill(PER_ROUND, transaction_size=transaction_size)
