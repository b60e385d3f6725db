"""`docs/configuration.md`, rendered from the table of settings."""

from __future__ import annotations

from gateway.config.group_configs import GROUP_CONFIGS, GroupConfig
from gateway.config.setting import Setting, render
from gateway.config.table import SETTINGS, TOPIC_ONLY_SETTINGS

_INTRODUCTION = """\
# Configuration

Written by `python -m gateway.documentation docs` (`make docs`) from the table of settings in `gateway/config`; a test
compares the two.

A setting comes from a flag (`seqgate serve --set NAME=VALUE`), else from the environment (the variable in the table),
else from the TOML file (`seqgate serve --config FILE`, or the variable SEQGATE_CONFIG), else it has its default. Names are
Kafka's; what Kafka has no name for begins with `seqgate.`. An unknown name or a value that is not allowed stops the start
with a sentence.

In TOML a name may stand in quotes (`"max.connections" = 100`) or be written as nested tables. Units are in the
names. *On a topic* is the name of the same setting in CreateTopics and AlterConfigs; the broker's value is its default.
Kafka's `kafka-topics --config` refuses names that Kafka does not know before it asks anybody: set those with `kafka-configs`, or in the
request of a client.

*Alterable* settings can be changed while the gateway runs, for this node or for all
(`kafka-configs --alter --entity-type brokers`, with `--entity-name ID` or `--entity-default`): a change is durable and in
effect when it is answered, comes before flags, environment and file, and can be taken back (`--delete-config`).
Of those that Kafka describes these are the ones that Kafka can alter. A lowered limit refuses what is new; what is there
already, such as connections and groups, stays. The others hold from the start on, and altering them is refused.
"""

_TOPICS_INTRODUCTION = """
## Configurations that only topics have

Set in CreateTopics and AlterConfigs (`kafka-configs --alter --entity-type topics`), in effect when they are answered.
"""

_GROUPS_INTRODUCTION = """
## Configurations of one group

Set with `kafka-configs --alter --entity-type groups --entity-name GROUP`, also before the group exists; they stay when it is
deleted, and hold from the next heartbeat or fetch on. What a group does not set is the setting for all groups. Kafka's
`*.assignment.interval.ms` (members are assigned at once here) and `streams.*` (there are no streams groups) are refused as unknown.
"""


def configuration_page() -> str:
    """The whole page as Markdown."""
    sections: dict[str, list[Setting]] = {}
    for setting in SETTINGS:
        if not setting.internal:
            sections.setdefault(setting.section, []).append(setting)
    parts = [_INTRODUCTION]
    for section, settings in sections.items():
        parts.append(f"\n## {section}\n")
        parts.extend(_entry(setting) for setting in settings)
    parts.append(_TOPICS_INTRODUCTION)
    parts.extend(_topic_entry(setting) for setting in TOPIC_ONLY_SETTINGS)
    parts.append(_GROUPS_INTRODUCTION)
    parts.extend(_group_entry(entry) for entry in GROUP_CONFIGS)
    return "\n".join(parts)


def _topic_entry(setting: Setting) -> str:
    default = render(setting.default)
    facts = f"type: {setting.type.name.lower()}; default: {f'`{default}`' if default else 'empty'}"
    return f"### `{setting.topic_name}`\n\n{setting.doc}\n\n- {facts}; allowed: {setting.allowed()}\n"


def _group_entry(entry: GroupConfig) -> str:
    setting = entry.setting
    default = " or ".join(f"`{fallback.name}`" for fallback in setting.fallbacks)
    rows = [
        ("type", setting.type.name.lower()),
        ("default", default or f"`{render(setting.default)}`"),
    ]
    if entry.at_least is not None and entry.at_most is not None:
        rows.append(("allowed", f"from `{entry.at_least}` to `{entry.at_most}`"))
    elif setting.check is None:
        rows.append(("allowed", setting.allowed()))
    facts = "; ".join(f"{name}: {value}" for name, value in rows)
    return f"### `{setting.name}`\n\n{setting.doc}\n\n- {facts}\n"


def _entry(setting: Setting) -> str:
    default = render(setting.default)
    rows = [
        ("type", setting.type.name.lower()),
        ("default", "unset" if default is None else f"`{default}`" if default else "empty"),
        ("allowed", setting.allowed()),
        ("environment", f"`{setting.environment_name}`"),
    ]
    if setting.topic_name is not None:
        rows.append(("on a topic", f"`{setting.topic_name}`"))
    rows.append(("alterable", "yes" if setting.dynamic else "no"))
    facts = "; ".join(f"{name}: {value}" for name, value in rows)
    return f"### `{setting.name}`\n\n{setting.doc}\n\n- {facts}\n"
