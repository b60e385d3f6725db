"""Streams orders into Parquet files and into a table of PostgreSQL, each order exactly once.

    python stream_orders.py                     # takes the orders that are there, and ends
    python stream_orders.py --every "5 seconds" # goes on until it is stopped

Kill it at any moment and start it again: both sides go on where they were.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from seqgate.spark import Database, SparkCompatError, Transaction, into_database, land, session

TOPIC = "orders"
ORDER = "order_id BIGINT, customer STRING, amount_cents BIGINT"
CREATE_TOTALS = """
CREATE TABLE IF NOT EXISTS customer_totals (customer TEXT PRIMARY KEY, orders BIGINT NOT NULL, cents BIGINT NOT NULL)
"""


def totals_of(records: DataFrame) -> DataFrame:
    """Return how many orders a micro batch has for each customer, and their sum."""
    orders = records.select(f.from_json(f.col("value").cast("string"), ORDER).alias("order")).select(
        "order.*"
    )
    return orders.groupBy("customer").agg(f.count("*").alias("orders"), f.sum("amount_cents").alias("cents"))


def add_to_totals(transaction: Transaction, rows: Sequence[Row]) -> None:
    """Add a micro batch to the table. Adding twice would count twice; the position in the same transaction
    prevents that.
    """
    for row in rows:
        transaction.execute(
            "INSERT INTO customer_totals (customer, orders, cents) VALUES (%s, %s, %s) ON CONFLICT "
            "(customer) DO UPDATE SET orders = customer_totals.orders + excluded.orders, cents = "
            "customer_totals.cents + excluded.cents",
            (row["customer"], row["orders"], row["cents"]),
        )


def start(
    spark: SparkSession, bootstrap: str, lake: str, sales: Database, *, every: str | None, at_once: int
) -> list[StreamingQuery]:
    """Start both queries. They read the topic independently of each other."""
    options = {"maxOffsetsPerTrigger": at_once}
    return [
        land(spark, bootstrap, TOPIC, lake, schema=ORDER, every=every, options=options),
        into_database(
            spark,
            bootstrap,
            TOPIC,
            sales,
            pipeline="customer-totals",
            rows=totals_of,
            write=add_to_totals,
            every=every,
            options=options,
        ),
    ]


def print_counts(spark: SparkSession, lake: str, sales: Database) -> None:
    """Print what both sides hold. Spark reads the files that its log calls finished, and no others."""
    files = spark.read.parquet(lake).select("record.*")
    found = files.agg(
        f.count("*").alias("orders"),
        f.countDistinct("order_id").alias("different"),
        f.sum("amount_cents").alias("cents"),
    ).first()
    assert found is not None
    print(f"Parquet: {found['orders']} orders, {found['different']} different, {found['cents']} cents")
    with sales.transaction() as transaction:
        select = "SELECT count(*), sum(orders), sum(cents) FROM customer_totals"
        customers, orders, cents = transaction.execute(select).fetchone()
    print(f"PostgreSQL: {orders} orders of {customers} customers, {cents} cents")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run both queries until all orders are taken, or until the process is stopped."""
    parser = argparse.ArgumentParser(description="Stream orders into Parquet and PostgreSQL, exactly once.")
    add = parser.add_argument
    add("--every", metavar="INTERVAL", help='run on, with a micro batch every INTERVAL such as "5 seconds"')
    add("--at-once", type=int, default=100_000, help="orders in a micro batch (default: %(default)s)")
    add("--lake", default="lake/orders", help="the folder of the Parquet files (default: %(default)s)")
    chosen = parser.parse_args(arguments)

    bootstrap = os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:9092")
    sales = Database(os.environ.get("DATABASE_URL", "postgresql:///sales"))
    with sales.transaction() as transaction:
        transaction.execute(CREATE_TOTALS)
    spark = session("orders", quiet=True)
    try:
        queries = start(spark, bootstrap, chosen.lake, sales, every=chosen.every, at_once=chosen.at_once)
    except SparkCompatError as error:  # such as a topic that does not exist
        sys.exit(f"stream_orders: {error}")
    for query in queries:
        query.awaitTermination()
    print_counts(spark, chosen.lake, sales)
    spark.stop()


if __name__ == "__main__":
    main()
