"""Sends each row of the outbox to a topic once, also when this process is killed between sending and marking.

    python relay.py          # runs until SIGTERM or Ctrl-C
    python relay.py --once   # ends when the outbox is empty

The relay numbers a row, sends it, and marks it as sent. A relay that starts again sends numbered rows without
a mark a second time, under the same number. The number is the sequence id of the record, so the gateway drops
what it has already.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import psycopg
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from psycopg.rows import class_row

PRODUCER_NAME = b"shop-outbox"
"""The name under which the gateway tracks the sequence ids. Never change it while rows are numbered but
not sent.
"""
DEDUPLICATION = "message.deduplication.enable"
PARTITIONS = 4
CLIENT: Mapping[str, str | int | float] = {
    "log_level": 3,  # errors
    # With the default, librdkafka begins anew twenty times a second while its only broker is away.
    "metadata.recovery.strategy": "none",
}
ROWS_AT_ONCE = 500
ANSWER_S = 5.0
"""How long the relay waits for the gateway at its start. Later it waits for ever."""
IDLE_S = 0.2
"""The pause before the relay looks into an empty outbox again."""


class RelayError(Exception):
    """The relay can't go on. The message says why, for people."""


class OutboxRow(NamedTuple):
    """A row of the outbox that has a number."""

    position: int
    key: str
    payload: str


def require_topic(bootstrap: str, topic: str) -> None:
    """Create the topic with deduplication if it does not exist. Raises RelayError if it exists without
    deduplication.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, **CLIENT})
    wanted = NewTopic(topic, num_partitions=PARTITIONS, config={DEDUPLICATION: "true"})
    try:
        admin.create_topics([wanted], request_timeout=ANSWER_S)[topic].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise RelayError(f"the topic {topic} can't be created: {error.args[0].str()}") from error
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    setting = (
        admin.describe_configs([resource], request_timeout=ANSWER_S)[resource].result().get(DEDUPLICATION)
    )
    if setting is None or setting.value != "true":
        raise RelayError(f"the topic {topic} would store repeated rows: set {DEDUPLICATION}=true first")


def new_producer(bootstrap: str) -> Producer:
    """Return a producer that never gives a record up in favour of a later one."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            # A record with a lower sequence id than a stored one counts as a duplicate. So no record may
            # overtake another: wait as long as the gateway is away, and stop at the first record that it
            # refuses.
            "message.timeout.ms": 0,
            "enable.gapless.guarantee": True,
            # The partition of a key, as Kafka's Java client chooses it.
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            **CLIENT,
        }
    )


class Relay:
    """Moves rows from the outbox to a topic. Several relays may run: they send the same rows, and one record
    is stored.
    """

    def __init__(self, database: psycopg.Connection, producer: Producer, topic: str) -> None:
        """Prepare the relay. `database` must be in autocommit mode."""
        self._database = database
        self._producer = producer
        self._topic = topic
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Let `run` return soon. Rows that are sent but not marked are sent again by the next relay."""
        self._stopping.set()

    def run(self, *, until_empty: bool) -> int:
        """Send rows until the relay is stopped, or until the outbox is empty; return how many. Raises
        RelayError.
        """
        sent = 0
        while not self._stopping.is_set():
            rows = self._numbered() or self._number_new_rows()
            if rows:
                sent += self._send_and_mark(rows)
            elif until_empty:
                break
            else:
                self._stopping.wait(IDLE_S)
        return sent

    def _numbered(self) -> list[OutboxRow]:
        with self._database.cursor(row_factory=class_row(OutboxRow)) as cursor:
            return cursor.execute(
                "SELECT position, key, payload FROM outbox WHERE sent_at IS NULL AND position IS NOT NULL "
                "ORDER BY position LIMIT %s",
                (ROWS_AT_ONCE,),
            ).fetchall()

    def _number_new_rows(self) -> list[OutboxRow]:
        """Give the next positions to rows that have none, commit, and return these rows.

        `row_id` can't be the sequence id: a transaction that commits late has lower row ids than one that
        committed before, and its records would count as duplicates. Positions grow in the order in which the
        relay sees the rows.
        """
        with self._database.transaction():
            self._database.execute("SELECT FROM outbox_position FOR UPDATE")  # one relay numbers at a time
            self._database.execute(
                """
                WITH new_rows AS (
                    SELECT row_id, row_number() OVER (ORDER BY row_id) AS place
                    FROM (SELECT row_id FROM outbox WHERE position IS NULL ORDER BY row_id LIMIT %s) AS unseen
                ), numbered AS (
                    UPDATE outbox SET position = outbox_position.last_position + new_rows.place
                    FROM new_rows, outbox_position WHERE outbox.row_id = new_rows.row_id
                    RETURNING position
                )
                UPDATE outbox_position SET last_position = greatest(last_position, (SELECT max(position) FROM numbered))
                """,
                (ROWS_AT_ONCE,),
            )
        return self._numbered()

    def _send_and_mark(self, rows: Sequence[OutboxRow]) -> int:
        if not self._send(rows):
            return 0
        self._database.execute(
            "UPDATE outbox SET sent_at = now() WHERE position BETWEEN %s AND %s AND sent_at IS NULL",
            (rows[0].position, rows[-1].position),
        )
        return len(rows)

    def _send(self, rows: Sequence[OutboxRow]) -> bool:
        """Send the rows; return whether all are acknowledged, or False when the relay was stopped before.
        Raises RelayError.
        """
        refusals: list[str] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                refusals.append(error.str())

        try:
            for row in rows:
                self._producer.produce(
                    self._topic,
                    key=row.key.encode(),
                    value=row.payload.encode(),
                    headers=[("dedup.name", PRODUCER_NAME), ("dedup.sequence", str(row.position).encode())],
                    on_delivery=delivered,
                )
            while self._producer.flush(IDLE_S):
                if self._stopping.is_set():
                    return False
        except KafkaException as error:  # the producer has met a refusal, and sends nothing more
            refusals.append(error.args[0].str())
        if refusals:
            raise RelayError(
                f"the topic {self._topic} refused a record, and nothing after it was sent: {refusals[0]}"
            )
        return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the relay; return the exit status."""
    parser = argparse.ArgumentParser(description="Send the rows of the outbox to a topic, each once.")
    add = parser.add_argument
    add("--once", action="store_true", help="end when the outbox is empty")
    add("--topic", default="placed-orders", help="default: %(default)s")
    add(
        "--bootstrap",
        default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:9092"),
        help="default: the environment variable KAFKA_BOOTSTRAP_SERVERS, or else 127.0.0.1:9092",
    )
    add(
        "--database",
        default=os.environ.get("DATABASE_URL", "postgresql:///shop"),
        help="default: the environment variable DATABASE_URL, or else postgresql:///shop",
    )
    chosen = parser.parse_args(arguments)
    try:
        require_topic(chosen.bootstrap, chosen.topic)
        with psycopg.connect(chosen.database, autocommit=True) as database:
            relay = Relay(database, new_producer(chosen.bootstrap), chosen.topic)
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda _number, _frame: relay.stop())
            sent = relay.run(until_empty=chosen.once)
    except (RelayError, psycopg.Error) as error:
        print(f"relay: {error}", file=sys.stderr)
        return 1
    print(f"sent {sent} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
