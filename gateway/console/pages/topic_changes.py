"""Creating and deleting topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from gateway.admin.remote.cluster import Cluster
from gateway.admin.request import ControlError
from gateway.admin.topics import remote as topics
from gateway.console.asking.topics import partition_figures, topic_lists, topic_places
from gateway.console.page import Answer, Confirmation, Redirect, View, Visit, topic_path

CREATE: Final = "/create-topic"
MOST_PARTITIONS: Final = 100_000
MOST_REPLICAS: Final = 100
_MOST_COUNTED: Final = 1_000
"""Partitions whose offsets are counted before a deletion."""
_FIELDS: Final = ("name", "partitions", "replication_factor", "settings")


def creation(visit: Visit) -> Answer:
    """Show the form for a new topic."""
    return _form(visit, None)


def _form(visit: Visit, error: str | None) -> View:
    values = {name: visit.text(name) for name in _FIELDS}
    return View("topic_create.html", {"error": error, "given": values}, 200 if error is None else 400)


def create(visit: Visit) -> Answer:
    """Create a topic, after the cluster has said that it would."""
    try:
        wanted = _wanted(visit)
        with visit.cluster() as cluster:
            _create(cluster, wanted, only_check=True)
            if not visit.is_confirmed:
                return _question(wanted)
            _create(cluster, wanted, only_check=False)
    except ControlError as error:
        return _form(visit, str(error))
    topic_lists.forget()
    return Redirect(topic_path(wanted.name), f"Topic {wanted.name} is created.")


class _Wanted(NamedTuple):
    """A topic as a form asks for it; None where the cluster's default counts."""

    name: str
    partitions: int | None
    replicas: int | None
    settings: Mapping[str, str]


def _wanted(visit: Visit) -> _Wanted:
    """Return the topic of a form. Raises ControlError."""
    name = visit.text("name").strip()
    if not name:
        raise ControlError("give the topic a name")
    return _Wanted(
        name,
        visit.optional_number("partitions", 1, MOST_PARTITIONS),
        visit.optional_number("replication_factor", 1, MOST_REPLICAS),
        _settings(visit.text("settings")),
    )


def _create(cluster: Cluster, wanted: _Wanted, *, only_check: bool) -> None:
    (outcome,) = topics.create(
        cluster,
        [wanted.name],
        partitions=wanted.partitions,
        replication_factor=wanted.replicas,
        settings=wanted.settings,
        if_not_exists=False,
        validate_only=only_check,
    )
    if outcome.error is not None:
        raise ControlError(f"topic {wanted.name} can't be created: {outcome.error}")


def _settings(text: str) -> dict[str, str]:
    """Return the settings of lines NAME=VALUE. Raises ControlError."""
    found = {}
    for line in filter(None, map(str.strip, text.split("\n"))):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise ControlError(f"each line of the settings must be NAME=VALUE, not {line[:80]!r}")
        found[name.strip()] = value.strip()
    return found


def _question(wanted: _Wanted) -> Confirmation:
    default = "the cluster's default"
    return Confirmation(
        title=f"Create topic {wanted.name}?",
        action="Create",
        back=CREATE,
        changes=(
            ("partitions", "–", default if wanted.partitions is None else f"{wanted.partitions:,}"),
            ("replicas", "–", default if wanted.replicas is None else str(wanted.replicas)),
            *((name, "default", value or "empty") for name, value in wanted.settings.items()),
        ),
    )


def delete(visit: Visit) -> Answer:
    """Delete a topic, after the person has typed its name."""
    name = visit.text("topic")
    with visit.cluster() as cluster:
        topic = topic_places(cluster, name)
        if not visit.is_confirmed or visit.text("typed") != name:
            counted = topic.partitions[:_MOST_COUNTED]
            figures = partition_figures(cluster, topic, counted).values()
            offsets = sum((row.log_end_offset or 0) - (row.log_start_offset or 0) for row in figures)
            more = "more than " if len(topic.partitions) > len(counted) else ""
            return Confirmation(
                title=f"Delete topic {name}?",
                action="Delete the topic",
                back=topic_path(name),
                sentences=(
                    f"The topic has {len(topic.partitions):,} partitions with {more}{offsets:,} offsets in use.",
                    "All its records and settings are deleted. They can't be brought back.",
                ),
                typed=name,
                is_danger=True,
            )
        (outcome,) = topics.delete(cluster, [name])
    if outcome.error is not None:
        raise ControlError(f"topic {name} is not deleted: {outcome.error}")
    topic_lists.forget()
    return Redirect("/topics", f"Topic {name} is deleted.")
