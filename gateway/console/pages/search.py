"""The search over everything that has a name, and the way to record keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from seqgate.gateway.admin.names import NamesRequest, joined_names
from seqgate.gateway.admin.pids import FindOwnerRequest, joined_owner
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.tables import shown
from seqgate.gateway.console.answer import PageAnswer, View, address, records_path, topic_path
from seqgate.gateway.console.asking.groups import group_lines, group_members
from seqgate.gateway.console.asking.topics import topic_lines
from seqgate.gateway.console.page import Get, NoGateways, Page, Visit
from seqgate.gateway.console.pages.producers import FIRST, producers
from seqgate.gateway.console.pages.transactions import TransactionFilter, listed

MOST_HITS: Final = 20
"""Hits of a kind that the page shows; it counts the others."""
MOST_ASKED: Final = 1_000
"""Producers, and groups with members, that are looked through."""
LONGEST: Final = 300


class Hit(NamedTuple):
    name: str
    link: str
    note: str = ""


class Hits(NamedTuple):
    """The hits of one kind; `trouble` is the reason why the kind could not be searched."""

    title: str
    found: Sequence[Hit]
    more: int = 0
    trouble: str | None = None


def search(visit: Visit) -> PageAnswer:
    """Show what has the text in its name, by kinds. Each kind is asked as the person who searches."""
    text = visit.text("q").strip()[:LONGEST]
    kinds = [] if not text else [_hits(title, ask, visit, text) for title, ask in _KINDS]
    return View(
        "search.html",
        {
            "text": text,
            "kinds": [kind for kind in kinds if kind.found or kind.trouble],
            "is_found": any(kind.found and kind.title != KEYS for kind in kinds),
            "titles": [title for title, _ in _KINDS],
        },
    )


def _hits(title: str, ask: Callable[[Visit, str], Iterator[Hit]], visit: Visit, text: str) -> Hits:
    """Return the hits of a kind, an exact name first."""
    try:
        found = sorted(
            dict.fromkeys(ask(visit, text)), key=lambda hit: (hit.name.lower() != text.lower(), hit)
        )
    except ControlError as error:
        return Hits(title, (), trouble=str(error))
    return Hits(title, found[:MOST_HITS], max(0, len(found) - MOST_HITS))


def _has(name: str, text: str) -> bool:
    return text.lower() in name.lower()


def _topics(visit: Visit, text: str) -> Iterator[Hit]:
    with visit.cluster() as cluster:
        names = [line.name for line in topic_lines(cluster)]
    yield from (Hit(name, topic_path(name)) for name in names if _has(name, text))


def _groups(visit: Visit, text: str) -> Iterator[Hit]:
    with visit.cluster() as cluster:
        lines = group_lines(cluster)
    for line in lines:
        if _has(line.group, text):
            yield Hit(line.group, address("/groups/view", group=line.group), line.state)


def _producers(visit: Visit, text: str) -> Iterator[Hit]:
    """Yield the partitions where a producer id is known, and the block that has the id."""
    if not (text.isascii() and text.isdecimal()):
        return
    sought = int(text)
    told, _ = visit.told_by_gateways(FindOwnerRequest(sought))
    if told is not None and joined_owner(told.answers).block is not None:
        yield Hit(text, address("/producer-ids", id=sought), "its block")
    for row in producers(visit, None, None, FIRST, MOST_ASKED).rows:
        if row.producer_id == sought:
            link = address("/producers/one", topic=row.topic, partition=row.partition, id=sought)
            yield Hit(text, link, f"in {row.topic}-{row.partition}")


def _clients(visit: Visit, text: str) -> Iterator[Hit]:
    """Yield the client ids of producers and of members of groups."""
    for row in producers(visit, None, None, FIRST, MOST_ASKED).rows:
        if row.client is not None and _has(row.client.client_id, text):
            link = address("/producers/one", topic=row.topic, partition=row.partition, id=row.producer_id)
            yield Hit(row.client.client_id, link, f"produces to {row.topic}-{row.partition}")
    with visit.cluster() as cluster:
        members = group_members(cluster, group_lines(cluster)[:MOST_ASKED])
    for group, client_ids in members.items():
        link = address("/groups/view", group=group)
        yield from (
            Hit(each, link, f"member of group {shown(group)}") for each in client_ids if _has(each, text)
        )


def _transactions(visit: Visit, text: str) -> Iterator[Hit]:
    with visit.cluster() as cluster:
        found = listed(cluster, TransactionFilter(pattern=f"(?is).*{re.escape(text)}.*"))
    for row in found:
        yield Hit(row.transactional_id, address("/transactions/one", id=row.transactional_id), row.state)


def _names(visit: Visit, text: str) -> Iterator[Hit]:
    """Yield the producer name that is the text; only gateways know names, and by the whole name."""
    asked = NamesRequest(None, None, text.encode("utf-8", "replace"), None, limit=MOST_HITS)
    with suppress(NoGateways):
        found = joined_names(visit.ask_gateways(asked).answers, MOST_HITS)
        for row in found.names:
            yield Hit(row.name, address("/names", name=text), f"in {row.topic}-{row.partition}")


def _keys(visit: Visit, text: str) -> Iterator[Hit]:
    """Yield a search of the keys of each topic; without an index, a topic is read when it is chosen."""
    with visit.cluster() as cluster:
        names = [line.name for line in topic_lines(cluster) if not line.is_internal]
    for name in names:
        yield Hit(name, address(records_path(name), filter=text, **{"in": "key"}))


KEYS: Final = "Records with this in their key, in topic"
_KINDS: Final = (
    ("Topics", _topics),
    ("Groups", _groups),
    ("Producer ids", _producers),
    ("Client ids", _clients),
    ("Transactional ids", _transactions),
    ("Producer names", _names),
    (KEYS, _keys),
)

PAGE: Final = Page("Search", None, None, Get("/search", search, waits_for="what has this in its name"))
