"""One producer in one partition: what happened to its batches, its block of ids, its transaction and its verdicts."""

from __future__ import annotations

from gateway.admin.pids.messages import FindOwnerRequest, Owner
from gateway.admin.producers.messages import ProducerRow
from gateway.admin.request import ControlError
from gateway.console.asking.transaction_list import TransactionLine, lines_of_producer
from gateway.console.page import Answer, View, Visit
from gateway.console.pages import verdicts
from gateway.console.pages.producers_asking import producers
from gateway.console.pages.producers_strip import key_of


def one(visit: Visit) -> Answer:
    """Show one producer."""
    topic = visit.text("topic")
    if not topic:
        raise ControlError("the address must name a topic; choose a producer from the list of producers")
    partition, producer_id = visit.number("partition", 0), visit.number("id", 0)
    told = producers(visit, topic, partition, (topic, partition, producer_id - 1), 1)
    row: ProducerRow | None = next((row for row in told.rows if row.producer_id == producer_id), None)
    owner, owner_trouble = _owner(visit, producer_id)
    transactions, transactions_trouble = _transactions(visit, producer_id)
    return View(
        "producers_one.html",
        {
            "topic": topic,
            "partition": partition,
            "producer_id": producer_id,
            "key": key_of(topic, partition, producer_id),
            "row": row,
            "trouble": told.trouble,
            "owner": owner,
            "owner_trouble": owner_trouble,
            "transactions": transactions,
            "transactions_trouble": transactions_trouble,
            **verdicts.table_of(visit, topic, partition, producer_id),
        },
    )


def _owner(visit: Visit, producer_id: int) -> tuple[Owner | None, str | None]:
    """Return the block that holds an id, or why it is not known; neither without --metrics."""
    if not visit.has_metrics:
        return None, None
    try:
        return visit.ask_gateway(FindOwnerRequest(producer_id)), None
    except ControlError as error:
        return None, str(error)


def _transactions(visit: Visit, producer_id: int) -> tuple[list[TransactionLine], str | None]:
    """Return the transactional ids that have this producer id: one, or none."""
    try:
        with visit.cluster() as cluster:
            return lines_of_producer(cluster, producer_id), None
    except ControlError as error:
        return [], str(error)
