"""The settings of a topic, which people change in their place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gateway.admin.configs import remote as configs
from gateway.admin.configs.command import ConfigRow
from gateway.admin.request import ControlError
from gateway.config.table import BY_TOPIC_NAME
from gateway.console.asking.topics import topic_places
from gateway.console.page import Answer, Confirmation, Redirect, View, Visit, topic_settings_path

_SET_ON_TOPIC: Final = "DYNAMIC_TOPIC_CONFIG"
_SOURCES: Final = {
    _SET_ON_TOPIC: "this topic",
    "DEFAULT_CONFIG": "default",
    "STATIC_BROKER_CONFIG": "broker's file",
    "DYNAMIC_BROKER_CONFIG": "broker",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "all brokers",
}
_SEQGATES_OWN: Final = "message.deduplication.enable"
"""A setting that only topics of Seqgate have."""


class SettingLine(NamedTuple):
    """A setting with where its value comes from, and what it does; `note` is empty where only Kafka's documentation says it."""

    row: ConfigRow
    source: str
    is_set_here: bool
    note: str


def settings(visit: Visit) -> Answer:
    """Show the settings of a topic, those that are set on it first."""
    name = visit.text("topic")
    wanted = visit.text("filter").strip()
    with visit.cluster() as cluster:
        topic = topic_places(cluster, name)
        listing = configs.get(cluster, configs.Resource("topic", name), (), everything=True)
    is_seqgate = any(row.name == _SEQGATES_OWN for row in listing.configs)
    lines = [
        _line(row, is_seqgate=is_seqgate) for row in listing.configs if wanted.lower() in row.name.lower()
    ]
    return View(
        "topic_settings.html",
        {
            "topic": topic,
            "lines": sorted(lines, key=lambda line: (not line.is_set_here, line.row.name)),
            "wanted": wanted,
        },
    )


def _line(row: ConfigRow, *, is_seqgate: bool) -> SettingLine:
    source = _SOURCES.get(row.source, row.source.replace("_", " ").lower())
    setting = BY_TOPIC_NAME.get(row.name) if is_seqgate else None
    note = "" if setting is None else setting.doc.replace("`", "")
    return SettingLine(row, source, row.source == _SET_ON_TOPIC, note)


def change_setting(visit: Visit) -> Answer:
    """Set one setting of a topic, or give it its default again."""
    topic, name, value = visit.text("topic"), visit.text("name"), visit.text("value")
    unset = visit.text("action") == "unset"
    resource = configs.Resource("topic", topic)
    with visit.cluster() as cluster:
        (before,) = configs.get(cluster, resource, [name], everything=True).configs
        if not visit.is_confirmed:
            return _question(topic, before, None if unset else value)
        error = configs.change_remote(
            cluster, resource, {} if unset else {name: value}, [name] if unset else []
        )
    if error is not None:
        raise ControlError(f"{name} of topic {topic} is not changed: {error}")
    done = "has its default again" if unset else f"is {_shown(value)}"
    return Redirect(topic_settings_path(topic), f"{name} of topic {topic} {done}.")


def _question(topic: str, before: ConfigRow, value: str | None) -> Confirmation:
    after = "the default" if value is None else _shown(value)
    return Confirmation(
        title=f"Change {before.name} of topic {topic}?",
        action="Change",
        back=topic_settings_path(topic),
        sentences=_warnings(before.name),
        changes=((before.name, "secret" if before.is_sensitive else _shown(before.value or ""), after),),
    )


def _warnings(name: str) -> Sequence[str]:
    if name in {"retention.ms", "retention.bytes", "cleanup.policy"}:
        return ("A stricter retention deletes records, and they can't be brought back.",)
    return ()


def _shown(value: str) -> str:
    return value or "empty"
