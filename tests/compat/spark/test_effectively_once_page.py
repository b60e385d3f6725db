"""The examples of `docs/effectively-once.md` do what the page says, also when run a second time."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from seqgate.spark_kafka_compat.databases import Database
from tests.compat.spark.topics import TIMEOUT_S, Topics

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "effectively-once.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
MADE_OF = {"into_database(": "Spark", "DatabaseReader(": "plain consumer", "Consumer(\n": "any other client"}


@pytest.mark.parametrize("made_of", MADE_OF)
def test_example(made_of: str, spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic, database = topics.fresh(partitions=2), tmp_path / "shop.db"
    (example,) = (code for code in EXAMPLES if made_of in code)
    code = example.replace("127.0.0.1:9092", topics.bootstrap).replace("/var/lib/shop.db", str(database))
    code = (
        code.replace('"payments"', repr(topic))
        .replace("timeout=5", "timeout=2")
        .replace('session("shop")', "spark")
    )
    done = compile(code, "effectively-once.md", "exec")
    for end in (10, 20):
        _send(topics.bootstrap, topic, range(end - 10, end))
        exec(done, {"spark": spark})
        exec(done, {"spark": spark})
        deadline = time.monotonic() + TIMEOUT_S
        # a consumer of the page stops after some idle time, perhaps before the records arrive
        while len(_sales(database)) < end and time.monotonic() < deadline:
            exec(done, {"spark": spark})
    assert _sales(database) == sorted((f"order-{amount}", amount) for amount in range(20))


def test_the_example_that_adds_up(tmp_path: Path) -> None:
    names: dict[str, object] = {}
    (example,) = (code for code in EXAMPLES if "def add_to_totals" in code)
    exec(compile(example, "effectively-once.md", "exec"), names)
    add_to_totals = names["add_to_totals"]
    assert callable(add_to_totals)
    with Database(f"sqlite://{tmp_path / 'shop.db'}").transaction() as transaction:
        transaction.execute("CREATE TABLE totals (customer TEXT PRIMARY KEY, total INTEGER)")
        for total in (1, 2):
            add_to_totals(transaction, [("a", total), ("b", 10 * total)])
        assert transaction.execute("SELECT * FROM totals").fetchall() == [("a", 3), ("b", 30)]


def _sales(database: Path) -> list[tuple[str, int]]:
    with Database(f"sqlite://{database}").transaction() as transaction:
        return sorted(transaction.execute("SELECT id, amount FROM sales").fetchall())


def _send(bootstrap: str, topic: str, amounts: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    for is_commit in (False, True):
        producer.begin_transaction()
        for amount in amounts:
            key = f"order-{amount}" if is_commit else f"aborted-{amount}"
            producer.produce(topic, str(amount).encode(), key.encode())
        assert producer.flush(TIMEOUT_S) == 0
        (producer.commit_transaction if is_commit else producer.abort_transaction)(TIMEOUT_S)
