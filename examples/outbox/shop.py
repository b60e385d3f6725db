"""A shop that places orders: the order, and its event for other systems, are rows of one transaction.

    python shop.py 1000

The shop never talks to Kafka. Once its transaction has committed, the event is in the outbox and can't get
lost.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence

import psycopg

CUSTOMERS = ("ada", "barbara", "donald", "edsger", "grace")


def place_order(database: psycopg.Connection, customer: str, amount_cents: int) -> int:
    """Store an order and its event in one transaction, and return the order's id."""
    with database.transaction():
        placed = database.execute(
            "INSERT INTO orders (customer, amount_cents) VALUES (%s, %s) RETURNING order_id",
            (customer, amount_cents),
        ).fetchone()
        assert placed is not None
        order_id = int(placed[0])
        event = {"order_id": order_id, "customer": customer, "amount_cents": amount_cents}
        database.execute("INSERT INTO outbox (key, payload) VALUES (%s, %s)", (customer, json.dumps(event)))
    return order_id


def main(arguments: Sequence[str] | None = None) -> None:
    """Place as many orders as the command line says."""
    parser = argparse.ArgumentParser(description="Place orders in the shop's database.")
    parser.add_argument("orders", type=int, help="how many orders to place")
    parser.add_argument(
        "--database",
        default=os.environ.get("DATABASE_URL", "postgresql:///shop"),
        help="default: the environment variable DATABASE_URL, or else postgresql:///shop",
    )
    chosen = parser.parse_args(arguments)
    with psycopg.connect(chosen.database, autocommit=True) as database:
        for number in range(chosen.orders):
            place_order(database, CUSTOMERS[number % len(CUSTOMERS)], amount_cents=100 + number)
    print(f"placed {chosen.orders} orders")


if __name__ == "__main__":
    main()
