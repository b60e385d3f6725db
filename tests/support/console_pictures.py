"""Makes the pictures of the console in the docs again: `python -m tests.support.console_pictures docs`.

The program runs a gateway with a shop's traffic and a console for six minutes, so that charts have
something to show. Some batches are repeated, skipped and fenced on purpose, as after a lost answer.
"""

from __future__ import annotations

import base64
import itertools
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Consumer, Producer
from playwright.sync_api import Browser

from tests.support.chromium import NARROW, chromium, watched
from tests.support.console_process import console_process
from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.group_members import commit_offsets
from tests.support.producing import begun, send
from tests.system.commands.clients import create_topic

TOPICS = {"orders": 3, "payments": 6, "shipments": 3, "customers": 1}
TRAFFIC_S = 330.0
STEP_S = 0.25
CITIES = ("Lisbon", "Oslo", "Prague", "Zürich", "Gent")
WIDE = {
    "console-overview": "/",
    "console-records": "/records/orders?partition=1",
    "console-producers": "/producers?topic=orders&partition=1",
    "console-groups": "/groups",
    "console-limits": "/limits",
}
DARK = ("console-overview", "console-records")
NARROW_PAGES = ("/topics", "/records/orders?partition=1", "/producers?topic=orders&partition=1")


def order(number: int) -> str:
    lines = [{"sku": f"SKU-{number * 7 % 900:05}", "count": number % 3 + 1, "price": number % 40 + 9.5}]
    shop = CITIES[number % len(CITIES)]
    return json.dumps(
        {"order": number, "shop": shop, "express": number % 4 == 0, "lines": lines}, ensure_ascii=False
    )


def write(bootstrap: str, ended: threading.Event) -> None:
    """Produce to all topics, faster and slower."""
    clients = {
        name: Producer(
            {"bootstrap.servers": bootstrap, "client.id": f"{name}-service", "enable.idempotence": True}
        )
        for name in ("checkout", "billing")
    }
    for step in itertools.count():
        for number in range(step * 40, step * 40 + 20 + (step // 8) % 20):
            clients["checkout"].produce(
                "orders",
                order(number),
                key=f"customer-{number % 900:04}",
                partition=number % 3,
                headers=[("trace", f"{number:08x}")],
            )
            clients["billing"].produce("payments", order(number), key=f"order-{number}")
            if number % 5 == 0:
                clients["billing"].produce("shipments", order(number), key=f"order-{number}")
        for client in clients.values():
            client.poll(0)
        if ended.wait(STEP_S):
            break
    for client in clients.values():
        client.flush()


def read(bootstrap: str, group: str, topic: str, ended: threading.Event) -> None:
    """Read a topic as a member of a group, and commit."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": f"{group}-1",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 1000,
        }
    )
    consumer.subscribe([topic])
    while not ended.is_set():
        consumer.consume(500, timeout=0.5)
    consumer.close()


def stumble(bootstrap: str, ended: threading.Event) -> None:
    """Repeat batches, skip sequences, and write with an old epoch."""
    producer_id, _ = begun(bootstrap, None)
    step = iter(range(0, 1_000_000, 3))
    while not ended.wait(4.0):
        first = next(step)
        send(bootstrap, "orders", producer_id, first, 3, partition=1, epoch=1)
        send(bootstrap, "orders", producer_id, first, 3, partition=1, epoch=1)
        if first % 5 == 0:
            send(bootstrap, "orders", producer_id, first + 30, 3, partition=1, epoch=1)
        if first % 7 == 0:
            send(bootstrap, "orders", producer_id, first + 3, 3, partition=1, epoch=0)


@contextmanager
def traffic(bootstrap: str) -> Iterator[None]:
    ended = threading.Event()
    readers = (("billing", "orders"), ("fraud-check", "payments"), ("warehouse", "shipments"))
    threads = [
        threading.Thread(target=write, args=(bootstrap, ended)),
        threading.Thread(target=stumble, args=(bootstrap, ended)),
        *(threading.Thread(target=read, args=(bootstrap, *pair, ended)) for pair in readers),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def take(browser: Browser, base: str, folder: Path) -> None:
    """Write the pictures into a folder."""
    for name, path in WIDE.items():
        for dark in (False, True) if name in DARK else (False,):
            with watched(browser, base, dark=dark) as window:
                page = window.open(path)
                page.wait_for_timeout(6_000)
                page.screenshot(path=folder / f"{name}{'-dark' if dark else ''}.png")
                if name == "console-overview" and not dark:
                    page.set_viewport_size({"width": 1280, "height": 2000})
                    page.wait_for_timeout(1_000)
                    charts = page.locator("figure", has_text="Produce time").locator("..")
                    charts.screenshot(path=folder / "console-latency.png")
    pictures = []
    for number, path in enumerate(NARROW_PAGES):
        with watched(browser, base, dark=number == 1, size=NARROW) as window:
            page = window.open(path)
            page.wait_for_timeout(6_000)
            if number:
                page.evaluate("document.querySelector('main table').scrollIntoView({behavior: 'instant'})")
            pictures.append(base64.b64encode(page.screenshot()).decode())
    with watched(browser, base, size=(NARROW[0] * 3 + 80, NARROW[1] + 40)) as window:
        images = "".join(f'<img src="data:image/png;base64,{each}">' for each in pictures)
        style = "body{margin:20px;display:flex;gap:20px;background:#b9c1c8}img{border-radius:10px}"
        window.page.set_content(f"<style>{style}</style>{images}")
        window.page.screenshot(path=folder / "console-narrow.png")


def main(folder: Path) -> None:
    settings = {"seqgate.metrics.listener": f"127.0.0.1:{free_port()}"}
    with TemporaryDirectory() as place, ExitStack() as stack:
        gateway = stack.enter_context(GatewayProcess(Path(place) / "data", settings=settings))
        for topic, partitions in TOPICS.items():
            create_topic(gateway.bootstrap, topic, partitions)
        commit_offsets(gateway.bootstrap, "monthly-report", "payments", dict.fromkeys(range(6), 0))
        metrics = f"http://{settings['seqgate.metrics.listener']}"
        base = stack.enter_context(console_process(Path(place), gateway.bootstrap, "--metrics", metrics))
        stack.enter_context(traffic(gateway.bootstrap))
        time.sleep(TRAFFIC_S)
        take(stack.enter_context(chromium()), base, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
