"""The list of topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from seqgate.gateway.admin import configs
from seqgate.gateway.admin.configs import ConfigRow
from seqgate.gateway.admin.remote.cluster import Cluster
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.tables import counted
from seqgate.gateway.admin.topics import alter_topic, create_topics, delete_topics
from seqgate.gateway.config.table import BY_TOPIC_NAME
from seqgate.gateway.console.answer import (
    Confirmation,
    PageAnswer,
    Redirect,
    View,
    address,
    ordered,
    page_of,
    topic_path,
    topic_settings_path,
    with_units,
)
from seqgate.gateway.console.asking.groups import group_figures, group_lines
from seqgate.gateway.console.asking.topics import (
    TopicLine,
    partition_figures,
    record_counts,
    settings_of,
    topic_lines,
    topic_places,
)
from seqgate.gateway.console.metrics.history import (
    HOUR_MS,
    TOPIC_BYTES_IN,
    TOPIC_BYTES_OUT,
    TOPIC_LAG,
    TOPIC_RECORDS,
    TOPIC_SIZE,
    Key,
    Series,
    key_of,
)
from seqgate.gateway.console.page import Feed, Get, Page, PageGroup, Post, Visit, above_form

_ORDERS: Final[Mapping[str, Callable[[TopicLine], Any]]] = {
    "name": lambda line: line.name,
    "partitions": lambda line: line.partitions,
    "size": lambda line: line.size_bytes,
    "trouble": lambda line: (line.offline, line.under_replicated),
}


def topics(visit: Visit) -> PageAnswer:
    wanted = visit.text("filter").strip()
    internal = visit.text("internal") == "yes"
    sort = visit.text("sort", "name")
    with visit.cluster() as cluster:
        lines = topic_lines(cluster)
    matching = [
        line for line in lines if (internal or not line.is_internal) and wanted.lower() in line.name.lower()
    ]
    rows, paging = page_of(ordered(matching, sort, _ORDERS, "name"), visit.number("page", 1, 1))
    with visit.cluster() as cluster:
        figures = _figures(visit, cluster, rows)
    return View(
        "topics.html",
        {
            "rows": rows,
            "figures": figures,
            "paging": paging,
            "wanted": wanted,
            "internal": internal,
            "sort": sort,
            "query": {"filter": wanted, "internal": "yes" if internal else None},
        },
    )


class TopicFigures(NamedTuple):
    """The figures of a topic in the list; None for an unknown one. `spark` has the points of a line."""

    records: int | None
    records_per_s: float | None
    spark: str
    last_write_ms: int | None
    retention_ms: str | None
    retention_bytes: str | None
    cleanup_policy: str | None
    groups: int | None


_SHOWN_SETTINGS: Final = ("retention.ms", "retention.bytes", "cleanup.policy")
MOST_GROUPS: Final = 500
"""Groups whose topics the list counts; a cluster with more has no counts."""
SPARK_WIDTH: Final = 72
SPARK_HEIGHT: Final = 18


def _figures(visit: Visit, cluster: Cluster, rows: Sequence[TopicLine]) -> dict[str, TopicFigures]:
    records = record_counts(cluster, rows)
    settings = settings_of(cluster, [row.name for row in rows], _SHOWN_SETTINGS)
    groups = _groups_of_topics(cluster)
    found = {}
    for row in rows:
        values, labels = settings.get(row.name, {}), {"topic": row.name}
        found[row.name] = TopicFigures(
            records.get(row.name),
            visit.history.last(TOPIC_RECORDS, labels),
            spark(visit.history.series(TOPIC_RECORDS, labels, HOUR_MS)),
            visit.history.last_write_ms(row.name),
            values.get("retention.ms"),
            values.get("retention.bytes"),
            values.get("cleanup.policy"),
            None if groups is None else groups[row.name],
        )
    return found


def _groups_of_topics(cluster: Cluster) -> Counter[str] | None:
    """Return how many groups read each topic, of the groups that the person may see."""
    try:
        lines = group_lines(cluster)
        if len(lines) > MOST_GROUPS:
            return None
        return Counter(topic for each in group_figures(cluster, lines).values() for topic in each.topics)
    except ControlError:
        return None


def spark(series: Series) -> str:
    """Return the points of a line through a series, for SVG; empty where there are fewer than two values."""
    known = series.known()
    if len(known) < 2 or known[-1][0] == known[0][0]:
        return ""
    (first, _), (last, _) = known[0], known[-1]
    highest = max(value for _, value in known) or 1.0
    return " ".join(
        f"{(time_ms - first) / (last - first) * SPARK_WIDTH:.1f},{(1 - value / highest) * SPARK_HEIGHT:.1f}"
        for time_ms, value in known
    )


# Creating and deleting topics.

CREATE: Final = "/create-topic"
MOST_PARTITIONS: Final = 100_000
MOST_REPLICAS: Final = 100
_MOST_COUNTED: Final = 1_000
"""Partitions whose offsets are counted before a deletion."""
_FIELDS: Final = ("name", "partitions", "replication_factor", "settings")


def creation(visit: Visit, error: str | None = None) -> View:
    values = {name: visit.text(name) for name in _FIELDS}
    return View("topic_create.html", {"error": error, "given": values}, 200 if error is None else 400)


@above_form(creation)
def create(visit: Visit) -> PageAnswer:
    """Create a topic, after the cluster has said that it would."""
    name = visit.text("name").strip()
    if not name:
        raise ControlError("give the topic a name")
    partitions = visit.optional_number("partitions", 1, MOST_PARTITIONS)
    replicas = visit.optional_number("replication_factor", 1, MOST_REPLICAS)
    settings = _settings(visit.text("settings"))
    with visit.cluster() as cluster:
        for only_check in (True, False):
            (outcome,) = create_topics(
                cluster,
                [name],
                partitions=partitions,
                replication_factor=replicas,
                settings=settings,
                validate_only=only_check,
            )
            if outcome.error is not None:
                raise ControlError(f"topic {name} can't be created: {outcome.error}")
            if not visit.is_confirmed:
                return _question(name, partitions, replicas, settings)
    topic_lines.forget()
    return Redirect(topic_path(name), f"Topic {name} is created.")


def _settings(text: str) -> dict[str, str]:
    """Return the settings of lines NAME=VALUE. Raises ControlError."""
    found = {}
    for line in filter(None, map(str.strip, text.split("\n"))):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise ControlError(f"each line of the settings must be NAME=VALUE, not {line[:80]!r}")
        found[name.strip()] = value.strip()
    return found


def _question(
    name: str, partitions: int | None, replicas: int | None, settings: Mapping[str, str]
) -> Confirmation:
    default = "the cluster's default"
    return Confirmation(
        title=f"Create topic {name}?",
        action="Create",
        back=CREATE,
        changes=(
            ("partitions", "–", default if partitions is None else f"{partitions:,}"),
            ("replicas", "–", default if replicas is None else str(replicas)),
            *((name, "default", with_units(name, value)) for name, value in settings.items()),
        ),
    )


def delete(visit: Visit) -> PageAnswer:
    """Delete a topic, after the person has typed its name."""
    name = visit.text("topic")
    with visit.cluster() as cluster:
        topic = topic_places(cluster, name)
        if not visit.is_confirmed or visit.text("typed") != name:
            first = topic.partitions[:_MOST_COUNTED]
            figures = partition_figures(cluster, topic, first).values()
            offsets = sum((row.log_end_offset or 0) - (row.log_start_offset or 0) for row in figures)
            more = "more than " if len(topic.partitions) > len(first) else ""
            records = f"{more}{counted(offsets, 'record')}"
            if any(row.log_end_offset is None for row in figures):
                records = "an unknown number of records"
            return Confirmation(
                title=f"Delete topic {name}?",
                action="Delete the topic",
                back=topic_path(name),
                sentences=(
                    f"The topic has {counted(len(topic.partitions), 'partition')} with {records}.",
                    "All its records and settings are deleted. They can't be brought back.",
                ),
                typed=name,
                is_danger=True,
            )
        (outcome,) = delete_topics(cluster, [name])
    if outcome.error is not None:
        raise ControlError(f"topic {name} is not deleted: {outcome.error}")
    topic_lines.forget()
    return Redirect("/topics", f"Topic {name} is deleted.")


# The partitions of a topic, and adding more of them.

ROWS: Final = 100
MOST_LAGGING: Final = 5
"""Groups in the chart of a topic's lag: those with the most."""


def partitions(visit: Visit) -> PageAnswer:
    name = visit.text("topic")
    with visit.cluster() as cluster:
        topic = topic_places(cluster, name)
        rows, paging = page_of(topic.partitions, visit.number("page", 1, 1), ROWS)
        figures = partition_figures(cluster, topic, rows)
        groups = lagging_groups(visit, cluster, name)
    known = [figure for figure in figures.values() if figure.log_end_offset is not None]
    return View(
        "topic_partitions.html",
        {
            "topic": topic,
            "rows": rows,
            "paging": paging,
            "figures": figures,
            "records": sum((figure.log_end_offset or 0) - (figure.log_start_offset or 0) for figure in known),
            "size_bytes": sum(figure.size_bytes or 0 for figure in figures.values()),
            "is_whole": paging.pages == 1,
            # a bar parts the names of the chart's lines
            "lags": [(f"lag-{number}", group.replace("|", "¦")) for number, group in enumerate(groups)],
            "lag_feed": address(f"/api{topic_path(name)}/lag", group=groups),
        },
    )


def lagging_groups(visit: Visit, cluster: Cluster, topic: str) -> list[str]:
    """Return the groups with the largest lag in a topic, of those that the person may see."""
    lags = {
        labels["group"]: visit.history.last(TOPIC_LAG, labels) or 0
        for labels in visit.history.labels_of(TOPIC_LAG)
        if labels["topic"] == topic
    }
    if not lags:
        return []
    visible = {line.group for line in group_lines(cluster)} & lags.keys()
    return sorted(visible, key=lambda group: (-lags[group], group))[:MOST_LAGGING]


def topic_lag(visit: Visit) -> PageAnswer:
    """Return the lag of the groups of a topic, by the number of each group."""
    name = visit.text("topic")
    with visit.cluster() as cluster:
        topic_places(cluster, name)
        visible = {line.group for line in group_lines(cluster)}
    groups = [group for group in visit.query.get("group", ()) if group in visible]
    keys = {
        f"lag-{number}": key_of(TOPIC_LAG, {"group": group, "topic": name})
        for number, group in enumerate(groups)
    }
    return visit.chart(visit.history, keys, visit.console.sampler.error)


def topic_history(visit: Visit) -> PageAnswer:
    """Return the rates and the size of a topic that the person may see, for the charts of its page."""
    name = visit.text("topic")
    with visit.cluster() as cluster:
        topic_places(cluster, name)
    keys: dict[str, Key] = {
        metric: key_of(metric, {"topic": name})
        for metric in (TOPIC_RECORDS, TOPIC_BYTES_IN, TOPIC_BYTES_OUT, TOPIC_SIZE)
    }
    return visit.chart(visit.history, keys, visit.console.sampler.error)


def add_partitions(visit: Visit) -> PageAnswer:
    name = visit.text("topic")
    wanted = visit.number("partitions", 0, 1, MOST_PARTITIONS)
    with visit.cluster() as cluster:
        now = len(topic_places(cluster, name).partitions)
        if wanted <= now:
            raise ControlError(
                f"topic {name} has {counted(now, 'partition')} already; give a higher number than {now}"
            )
        if not visit.is_confirmed:
            return Confirmation(
                title=f"Give topic {name} more partitions?",
                action="Add partitions",
                back=topic_path(name),
                sentences=(
                    "A topic can't lose partitions again.",
                    (
                        "From then on records with a key may go to other partitions, so their order is lost "
                        "once."
                    ),
                ),
                changes=(("partitions", f"{now:,}", f"{wanted:,}"),),
            )
        outcome = alter_topic(cluster, name, partitions=wanted, settings={}, unset=())
    if outcome.error is not None:
        raise ControlError(f"topic {name} keeps its partitions: {outcome.error}")
    topic_lines.forget()
    return Redirect(topic_path(name), f"Topic {name} has {counted(wanted, 'partition')}.")


# The settings of a topic, which people change in their place.

_SET_ON_TOPIC: Final = "DYNAMIC_TOPIC_CONFIG"
_SOURCES: Final = {
    _SET_ON_TOPIC: "this topic",
    "DEFAULT_CONFIG": "default",
    "STATIC_BROKER_CONFIG": "broker's file",
    "DYNAMIC_BROKER_CONFIG": "broker",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "all brokers",
}
_SEQGATES_OWN: Final = "message.deduplication.enable"


class SettingLine(NamedTuple):
    """A setting, its source and what it does; `note` is empty where only Kafka's page says it."""

    row: ConfigRow
    source: str
    is_set_here: bool
    note: str


def settings(visit: Visit) -> PageAnswer:
    """Show the settings of a topic, those that are set on it first."""
    name = visit.text("topic")
    wanted, only_changed = visit.text("filter").strip(), visit.text("changed") == "yes"
    with visit.cluster() as cluster:
        topic = topic_places(cluster, name)
        listing = configs.find_configs(cluster, configs.Resource("topic", name), (), everything=True)
    is_seqgate = any(row.name == _SEQGATES_OWN for row in listing.configs)
    lines = [
        _line(row, is_seqgate=is_seqgate) for row in listing.configs if wanted.lower() in row.name.lower()
    ]
    changed = [line for line in lines if line.is_set_here]
    return View(
        "topic_settings.html",
        {
            "topic": topic,
            "only_changed": only_changed,
            "changed": len(changed),
            "lines": sorted(
                changed if only_changed else lines, key=lambda line: (not line.is_set_here, line.row.name)
            ),
            "wanted": wanted,
        },
    )


def _line(row: ConfigRow, *, is_seqgate: bool) -> SettingLine:
    source = _SOURCES.get(row.source, row.source.replace("_", " ").lower())
    setting = BY_TOPIC_NAME.get(row.name) if is_seqgate else None
    note = "" if setting is None else setting.doc.replace("`", "")
    return SettingLine(row, source, row.source == _SET_ON_TOPIC, note)


def change_setting(visit: Visit) -> PageAnswer:
    """Set or remove one setting of a topic after a confirmation."""
    topic, name, value = visit.text("topic"), visit.text("name"), visit.text("value")
    unset = visit.text("action") == "unset"
    resource = configs.Resource("topic", topic)
    with visit.cluster() as cluster:
        (before,) = configs.find_configs(cluster, resource, [name], everything=True).configs
        if not visit.is_confirmed:
            return _question_topic_settings(topic, before, None if unset else value)
        error = configs.change_remote(
            cluster, resource, {} if unset else {name: value}, [name] if unset else []
        )
    if error is not None:
        raise ControlError(f"{name} of topic {topic} is not changed: {error}")
    done = "is no longer set" if unset else f"is {with_units(name, value)}"
    return Redirect(topic_settings_path(topic), f"{name} of topic {topic} {done}.")


def _question_topic_settings(topic: str, before: ConfigRow, value: str | None) -> Confirmation:
    after = "what counts without it" if value is None else with_units(before.name, value)
    return Confirmation(
        title=f"Change {before.name} of topic {topic}?",
        action="Change",
        back=topic_settings_path(topic),
        sentences=("A stricter retention deletes records, and they can't be brought back.",)
        if before.name in {"retention.ms", "retention.bytes", "cleanup.policy"}
        else (),
        changes=((before.name, _before(before), after),),
    )


def _before(row: ConfigRow) -> str:
    return "secret" if row.is_sensitive else with_units(row.name, row.value or "")


PAGE: Final = Page(
    "Topics",
    PageGroup.DATA,
    "t",
    Get("/topics", topics, waits_for="the list of topics"),
    Get(CREATE, creation),
    Post(CREATE, create),
    Get("/topics/{topic}", partitions, waits_for="the partitions' leaders"),
    Feed("/api/topics/{topic}/history", topic_history),
    Feed("/api/topics/{topic}/lag", topic_lag),
    Post("/topics/{topic}/partitions", add_partitions),
    Get("/topics/{topic}/settings", settings, waits_for="the settings of the topic"),
    Post("/topics/{topic}/settings", change_setting),
    Post("/topics/{topic}/delete", delete),
)
