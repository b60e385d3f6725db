"""The partitions of a topic, and adding more of them."""

from __future__ import annotations

from typing import Final

from gateway.admin.request import ControlError
from gateway.admin.topics import remote as topics
from gateway.console.asking.topics import partition_figures, topic_lists, topic_places
from gateway.console.page import Answer, Confirmation, Redirect, View, Visit, page_of, topic_path

ROWS: Final = 100
MOST_PARTITIONS: Final = 100_000


def partitions(visit: Visit) -> Answer:
    """Show the partitions of a topic."""
    name = visit.text("topic")
    with visit.cluster() as cluster:
        topic = topic_places(cluster, name)
        rows, paging = page_of(topic.partitions, visit.number("page", 1, 1), ROWS)
        figures = partition_figures(cluster, topic, rows)
    known = [figure for figure in figures.values() if figure.log_end_offset is not None]
    return View(
        "topic_partitions.html",
        {
            "topic": topic,
            "rows": rows,
            "paging": paging,
            "figures": figures,
            "offsets_in_use": sum(
                (figure.log_end_offset or 0) - (figure.log_start_offset or 0) for figure in known
            ),
            "size_bytes": sum(figure.size_bytes or 0 for figure in figures.values()),
            "is_whole": paging.pages == 1,
        },
    )


def add_partitions(visit: Visit) -> Answer:
    """Give the topic more partitions."""
    name = visit.text("topic")
    wanted = visit.number("partitions", 0, 1, MOST_PARTITIONS)
    with visit.cluster() as cluster:
        now = len(topic_places(cluster, name).partitions)
        if wanted <= now:
            raise ControlError(f"topic {name} has {now} partitions already; give a higher number than {now}")
        if not visit.is_confirmed:
            return Confirmation(
                title=f"Give topic {name} more partitions?",
                action="Add partitions",
                back=topic_path(name),
                sentences=(
                    "A topic can't lose partitions again.",
                    "From then on records with a key may go to other partitions, so their order is lost once.",
                ),
                changes=(("partitions", f"{now:,}", f"{wanted:,}"),),
            )
        outcome = topics.alter(cluster, name, partitions=wanted, settings={}, unset=())
    if outcome.error is not None:
        raise ControlError(f"topic {name} keeps its partitions: {outcome.error}")
    topic_lists.forget()
    return Redirect(topic_path(name), f"Topic {name} has {wanted:,} partitions.")
