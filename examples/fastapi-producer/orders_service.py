"""An HTTP service that takes orders, and answers 201 only after the order's record is acknowledged.

uvicorn orders_service:app --port 8000
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, cast

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from fastapi import Depends, FastAPI, HTTPException, Request, Response, status
from pydantic import BaseModel, Field

BOOTSTRAP = os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:9092")
TOPIC = os.environ.get("ORDERS_TOPIC", "web-orders")
ACKNOWLEDGED_WITHIN_S = float(os.environ.get("ORDERS_TIMEOUT_S", "30"))
"""How long a request waits for its acknowledgement. The gateway may restart meanwhile."""
HEALTHY_WITHIN_S = 2.0

log = logging.getLogger("uvicorn.error")


class Order(BaseModel):
    """An order in a request."""

    order_id: str = Field(min_length=1, max_length=64)
    customer: str = Field(min_length=1, max_length=64)
    amount_cents: int = Field(gt=0)


class StoredOrder(BaseModel):
    """A stored order, with the partition and offset of its record."""

    order_id: str
    partition: int
    offset: int


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Keep one producer for all requests. Its stop sends what requests still wait for."""
    producer = AIOKafkaProducer(
        bootstrap_servers=BOOTSTRAP,
        client_id="orders-service",
        # Repeats a request until it is answered, and each record is stored once. Implies acks="all".
        enable_idempotence=True,
        request_timeout_ms=5_000,
        retry_backoff_ms=100,
    )
    app.state.producer = producer
    try:
        await producer.start()
        log.info("Connected to %s, topic %s", BOOTSTRAP, TOPIC)
        yield
    finally:
        try:
            async with asyncio.timeout(ACKNOWLEDGED_WITHIN_S):
                await producer.stop()
            log.info("No order waits for an acknowledgement")
        except TimeoutError:
            log.error("Some orders are not acknowledged: %s does not answer", BOOTSTRAP)  # noqa: TRY400 - no bug, no trace


def running_producer(request: Request) -> AIOKafkaProducer:
    """Return the producer of the service."""
    return cast("AIOKafkaProducer", request.app.state.producer)


Producer = Annotated[AIOKafkaProducer, Depends(running_producer)]
app = FastAPI(title="Orders", lifespan=lifespan)


@app.post("/orders", status_code=status.HTTP_201_CREATED)
async def post_order(order: Order, producer: Producer) -> StoredOrder:
    """Store an order. 503 means that it is not known whether the order is stored."""
    try:
        async with asyncio.timeout(ACKNOWLEDGED_WITHIN_S):
            stored = await producer.send_and_wait(
                TOPIC, order.model_dump_json().encode(), key=order.customer.encode()
            )
    except (KafkaError, TimeoutError) as error:
        log.warning("Order %s is not acknowledged: %r", order.order_id, error)
        raise HTTPException(
            status.HTTP_503_SERVICE_UNAVAILABLE,
            f"order {order.order_id} is not acknowledged; it may be stored later",
            headers={"Retry-After": "5"},
        ) from error
    return StoredOrder(order_id=order.order_id, partition=stored.partition, offset=stored.offset)


@app.get("/health")
async def health(producer: Producer, response: Response) -> dict[str, str]:
    """Tell whether a broker answers: 200, or 503."""
    try:
        async with asyncio.timeout(HEALTHY_WITHIN_S):
            answers = await producer.client.force_metadata_update()
    except (KafkaError, TimeoutError):
        answers = False
    if not answers:
        response.status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    return {"kafka": "answers" if answers else "does not answer"}
