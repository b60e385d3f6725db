"""A plain consumer is killed by SIGKILL at random moments; afterwards the database has every line exactly
once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from random import Random

from confluent_kafka import Producer

from seqgate.spark_kafka_compat.databases import Database
from seqgate.spark_kafka_compat.positions import stored_positions
from tests.compat.databases.lines_by_reader import CREATE_LINES
from tests.compat.spark.topics import TIMEOUT_S, Topics
from tests.support.gateway_process import REPOSITORY, GatewayProcess
from tests.support.seeds import SEED_VARIABLE, chosen_seed

LIVES, MOMENTS_OF_A_LIFE = 8, 60
TRANSACTIONS, LINES_OF_ONE, AT_ONCE, PARTITIONS = 120, 20, 20, 2
PATIENCE_S = 120


def fill(bootstrap: str, topic: str, random: Random) -> list[int]:
    """Write committed and aborted transactions in random order; return the lines of the committed
    transactions.
    """
    committed: list[int] = []
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    for number in range(TRANSACTIONS):
        lines = range(number * LINES_OF_ONE, (number + 1) * LINES_OF_ONE)
        producer.begin_transaction()
        for line in lines:
            producer.produce(topic, str(line).encode(), partition=line % PARTITIONS)
        assert producer.flush(TIMEOUT_S) == 0
        if random.random() < 0.1:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
            committed += lines
    return committed


def live(bootstrap: str, topic: str, url: str, dies_at: int | None) -> None:
    death = () if dies_at is None else ("any", str(dies_at))
    done = subprocess.run(
        [
            *(sys.executable, "-W", "ignore", "-m", "tests.compat.databases.lines_by_reader"),
            *(bootstrap, topic, url, str(AT_ONCE), *death),
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == (0 if dies_at is None else -signal.SIGKILL), done.stderr[-4_000:]


def test_every_line_is_in_the_database_once(shared_gateway: GatewayProcess, database_url: str) -> None:
    seed = chosen_seed()
    random = Random(seed)
    topic = Topics(shared_gateway.bootstrap).fresh(partitions=PARTITIONS)
    committed = fill(shared_gateway.bootstrap, topic, random)
    database = Database(database_url)
    with database.transaction() as transaction:
        transaction.execute(CREATE_LINES)

    for _ in range(LIVES):
        live(shared_gateway.bootstrap, topic, database_url, 1 + random.randrange(MOMENTS_OF_A_LIFE))
    assert max(stored_positions(database, "lines").values()) > 0
    live(shared_gateway.bootstrap, topic, database_url, None)

    with database.transaction() as transaction:
        found = [line for (line,) in transaction.execute("SELECT line FROM lines").fetchall()]
    doubled = [line for line, times in Counter(found).items() if times > 1]
    missing = sorted(set(committed) - set(found))
    assert (doubled, missing) == ([], []), f"{SEED_VARIABLE}={seed}"
    assert sorted(found) == committed, f"{SEED_VARIABLE}={seed}"
