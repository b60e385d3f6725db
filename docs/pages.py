"""Writes the generated pages: `python docs/pages.py docs` (`make docs`). With `--check` only compares them
with the files.

    protocol-support.md     from the list of handlers and their modules' docstrings
    configuration.md        from the table of settings
    commands.md             from the help of the commands
    control-socket.md       from the list of operations
    metrics.md              from the table of metrics
    certify-scripts.md      from the fault scripts
    spark-options.md        from the table of Spark's options
    test-control.json       from the routes of the test control
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import typer
from typer.core import TyperGroup

from seqgate.gateway.admin.help import CONTEXT
from seqgate.gateway.admin.operation import ControlOperation
from seqgate.gateway.admin.operations import OPERATIONS
from seqgate.gateway.admin.request import MAX_ANSWER_BYTES, MAX_PAGE_ROWS, MAX_REQUEST_BYTES, PAGE_ROWS
from seqgate.gateway.certify.scripts import SCRIPTS
from seqgate.gateway.cli import app
from seqgate.gateway.config.groups import GROUP_CONFIGS, GroupConfig
from seqgate.gateway.config.kept_brokers import KEPT_SECTION, KEPT_SETTINGS, MAX_KEPT_NAMES, OF_ONE_BROKER
from seqgate.gateway.config.setting import Setting, render
from seqgate.gateway.config.table import SETTINGS, TOPIC_ONLY_SETTINGS
from seqgate.gateway.handlers import APIS
from seqgate.gateway.handlers.answering.api import Api
from seqgate.gateway.metrics.metric import Subject
from seqgate.gateway.metrics.table import SUBJECTS
from seqgate.gateway.protocol.kafka_4_4 import api_name
from seqgate.gateway.telemetry.subscriptions import CLIENT_METRICS_CONFIGS
from seqgate.gateway.testing.control.routes import description
from seqgate.spark_kafka_compat.options import OPTIONS, USE_NAMES


def pages() -> dict[str, str]:
    """Return the generated pages by file name."""
    return {
        "certify-scripts.md": scripts_page(),
        "commands.md": commands_page(app),
        "configuration.md": configuration_page(),
        "control-socket.md": control_socket_page(OPERATIONS),
        "metrics.md": metrics_page(),
        "protocol-support.md": protocol_page(APIS),
        "spark-options.md": options_page(),
        "test-control.json": json.dumps(description(), indent=1) + "\n",
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or compare them under `--check`; return the exit code, 1 when pages differ under
    `--check`.
    """
    parser = argparse.ArgumentParser(prog="python docs/pages.py", description=__doc__)
    parser.add_argument("directory", type=Path, help="the directory of the pages")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail when a page is not up to date"
    )
    options = parser.parse_args(arguments)
    directory: Path = options.directory
    stale = [name for name, text in pages().items() if _content(directory / name) != text]
    if options.check:
        for name in stale:
            sys.stderr.write(f"{directory / name} is not up to date; run: python docs/pages.py {directory}\n")
        return 1 if stale else 0
    directory.mkdir(parents=True, exist_ok=True)
    for name in stale:
        (directory / name).write_text(pages()[name], encoding="utf-8")
        sys.stdout.write(f"{directory / name} written\n")
    return 0


def _content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


# docs/protocol-support.md

AREAS: Final = (
    ("Consumer groups", (8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47, 68, 69)),
    ("Streams groups", (88, 89, 93)),
    ("Share groups", (76, 77, 78, 79, 90, 91, 92)),
    ("Transactions", (24, 25, 26, 27, 28, 65, 66)),
    ("Authentication and authorization", (17, 29, 30, 31, 36, 38, 39, 40, 41, 50, 51)),
    ("Quotas", (48, 49)),
    ("The controller quorum", (80, 81)),
    ("Client metrics and configuration resources", (71, 72, 74)),
)
"""The APIs that clients and Kafka's tools send, by area."""
BETWEEN_BROKERS: Final = frozenset((52, 53, 54, 56, 58, 59, 62, 67, 70, 73, 82, 83, 84, 85, 86, 87))
"""The APIs that only Kafka's brokers and controllers send to each other."""

_PROTOCOL_INTRODUCTION: Final = """\
# Protocol support

Look up here which APIs and versions of the Kafka protocol Seqgate serves, and how each API behaves.

The gateway answers every version in the ranges of the first table, and advertises these ranges in ApiVersions (BrokerHeartbeat only
where there are several gateways); nothing else is served. The ranges are those of Apache Kafka 4.4. A request of another API or version closes the connection, as in Kafka; only
an ApiVersions request of an unknown version is answered, in v0 and with error 35 (KIP-511).

With an authorizer a client needs the rights that each API names. A topic that the client may not describe, and a topic without
the right that a request needs, get TOPIC_AUTHORIZATION_FAILED whether they exist or not.

The page is generated by `make docs` from the handlers in `gateway/handlers`; a test
compares the two.
"""
_SUMMARY = re.compile(r"\w+ \(key \d+, versions? [^)]*\): (.+?) Rights: (.+)\.")
_BEGINNING: Final = re.compile(r"(?m)^(?=[A-Z]\w+ \(key \d+, )")
"""The place in a docstring where the part of an API begins."""


def protocol_page(apis: Iterable[Api[Any]]) -> str:
    """Return the page of served APIs as Markdown."""
    served = sorted(apis, key=lambda api: api.key)
    lines = [_PROTOCOL_INTRODUCTION, "| key | API | versions | what it does |", "| ---: | --- | --- | --- |"]
    lines += [
        f"| {api.key} | [{api.name}](#{api.name.lower()}) | {_versions(api)} | {description_of(api).summary} |"
        for api in served
    ]
    lines += ["", "## In detail"]
    for api in served:
        summary, rights, details = description_of(api)
        lines += [
            "",
            f"### {api.name}",
            "",
            (
                f"Key {api.key}, {'version' if len(set(api.versions)) == 1 else 'versions'} "
                f"{_versions(api)}: {summary}"
            ),
        ]
        lines += ["", f"Rights: {rights}."]
        if details:
            lines += ["", details]
    lines += ["", "## Not served", "", *_not_served({api.key for api in served})]
    return "\n".join(lines) + "\n"


def _versions(api: Api[Any]) -> str:
    lowest, highest = api.versions
    served = str(highest) if lowest == highest else f"{lowest}–{highest}"
    if not api.advertised_but_refused:
        return served
    return f"{served} (advertised from {api.advertised_but_refused[0]})"


class Description(NamedTuple):
    """The part of a module's docstring about an API: what it does, the rights that it asks for, and the rest."""

    summary: str
    rights: str
    details: str


def description_of(api: Api[Any]) -> Description:
    """Return what the docstring of the API's module says. The part of an API ends with the paragraph that
    names the source of the rules.
    """
    module = inspect.getmodule(api.begin or api.handle)
    parts = _BEGINNING.split(inspect.getdoc(module) or "")
    own = next((part for part in parts if part.startswith(f"{api.name} (key {api.key},")), "")
    first, _, rest = own.partition("\n\n")
    match = _SUMMARY.fullmatch(" ".join(first.split()))
    if match is None:
        raise ValueError(
            f"the docstring of {api.name}'s module must have a paragraph 'Name (key N, versions A–B): what "
            "it does. Rights: those that it asks for.'"
        )
    paragraphs = rest.strip("\n").split("\n\n")
    end = next((n for n, text in enumerate(paragraphs, 1) if "Source:" in text), len(paragraphs))
    return Description(match[1], match[2], "\n\n".join(paragraphs[:end]))


def _not_served(served: set[int]) -> list[str]:
    lines = []
    for area, keys in AREAS:
        names = [f"{api_name(key)} ({key})" for key in keys if key not in served]
        if names:
            lines.append(f"- {area}: {', '.join(names)}")
    lines.append("- APIs between Kafka's brokers and controllers")
    return lines


# docs/configuration.md

_CONFIGURATION_INTRODUCTION = """\
# Configuration

Look up every setting of the gateway, of topics, of groups and of client metrics here: what it does, its default, and the allowed values.

<!-- first: echo '"log.segment.bytes" = 268435456' > seqgate.toml -->
```bash
seqgate serve --set log.segment.bytes=268435456           # a flag
SEQGATE_LOG_SEGMENT_BYTES=268435456 seqgate serve         # the environment
seqgate serve --config seqgate.toml                       # a TOML file, also named by SEQGATE_CONFIG
```

A flag comes before the environment, the environment before the file, and the file before the default. In TOML a name can be
quoted (`"max.connections" = 100`) or be written as nested tables. Names are Kafka's; a setting that Kafka does not have
begins with `seqgate.`. The unit is part of the name. An unknown name, or a value that is not allowed, stops the start with a
message.

*On a topic* is the name of the same setting in CreateTopics and AlterConfigs; the broker's value is the topic's default.
Kafka's `kafka-topics --config` refuses names that Kafka does not know before it sends a request: set such names with
`seqgate configs set topic`, `kafka-configs`, or in the request of a client.

*Alterable* settings can be changed while the gateway runs, for this node or for all nodes
(`seqgate configs set broker 1 log.retention.ms=86400000` for node 1;
`kafka-configs --alter --entity-type brokers`, with `--entity-name ID` or `--entity-default`). A change is
durable and in effect when the request is answered. An
altered value comes before flags, environment and file, until `seqgate configs unset` (`--delete-config`)
removes it. Kafka's own settings are alterable here where they are alterable in Kafka. A setting of Kafka that
means nothing here has the *effect* none: its value is kept and described, so that tools which set and compare
the setting work. A lowered limit refuses new connections, groups and so on, and keeps the existing ones. A
setting that is not alterable is read at the start; the gateway refuses to alter it.

The page is generated by `make docs` from the table of settings in `gateway/config`; a
test compares the two.
"""

_TOPICS_HEADING = "Configurations that only topics have"
_TOPICS_INTRODUCTION = f"""
## {_TOPICS_HEADING}

Set these with `seqgate topics create --set` or `seqgate configs set topic` (`kafka-configs --alter --entity-type topics`). They are in effect when the request is
answered.
"""

_GROUPS_HEADING = "Configurations of one group"
_GROUPS_INTRODUCTION = f"""
## {_GROUPS_HEADING}

Set these with `seqgate configs set group GROUP NAME=VALUE` (`kafka-configs --alter --entity-type groups --entity-name GROUP`),
also before the group exists. They stay when the
group is deleted, and take effect with the next heartbeat or fetch. A group without a value of its own uses the setting for
all groups.
"""


_KEPT_INTRODUCTION = f"""
## {KEPT_SECTION}

Leave these as they are: AlterConfigs of a broker keeps a value and DescribeConfigs describes it, as in Kafka,
and nothing else happens. They can't be set at the start. Types, defaults and allowed values are those of
Apache Kafka 4.4.

AlterConfigs answers as Kafka for every other name, too. It refuses settings that Kafka reads at its start
only (`broker.id`, `process.roles`, …). It keeps a name that neither Kafka nor the gateway knows without
effect, up to {MAX_KEPT_NAMES:,} names, and DescribeConfigs hides such a value; the gateway's log has a line
with the nearest valid name. `seqgate configs set` refuses an unknown name before it sends a request.

| setting | type | default | allowed | altered for | why it has no effect |
| --- | --- | --- | --- | --- | --- |
"""

_CLIENT_METRICS_HEADING = "Configurations of client metrics"
_CLIENT_METRICS_INTRODUCTION = f"""
## {_CLIENT_METRICS_HEADING}

Set these on a subscription with `kafka-client-metrics --alter --name NAME --metrics LIST --interval MS --match LIST`, or
`kafka-configs --alter --entity-type client-metrics --entity-name NAME`. Clients follow a change within their present interval.
"""


def configuration_page() -> str:
    """Return the whole page as Markdown."""
    sections: dict[str, list[Setting]] = {}
    for setting in SETTINGS:
        if not setting.internal:
            sections.setdefault(setting.section, []).append(setting)
    parts = [_CONFIGURATION_INTRODUCTION, _contents(sections)]
    for section, settings in sections.items():
        parts.append(f"\n## {section}\n")
        parts.extend(_setting_entry(setting) for setting in settings)
    parts.append(_KEPT_INTRODUCTION + "".join(map(_kept_row, KEPT_SETTINGS)))
    parts.append(_TOPICS_INTRODUCTION)
    parts.extend(_topic_entry(setting) for setting in TOPIC_ONLY_SETTINGS)
    parts.append(_GROUPS_INTRODUCTION)
    parts.extend(_group_entry(entry) for entry in GROUP_CONFIGS)
    parts.append(_CLIENT_METRICS_INTRODUCTION)
    parts.extend(_client_metrics_entry(setting) for setting in CLIENT_METRICS_CONFIGS)
    return "\n".join(parts)


def _contents(sections: dict[str, list[Setting]]) -> str:
    """Return the table of contents: a line for each section, with links to its settings."""
    names = {section: [setting.name for setting in settings] for section, settings in sections.items()}
    names[KEPT_SECTION] = []
    names[_TOPICS_HEADING] = [str(setting.topic_name) for setting in TOPIC_ONLY_SETTINGS]
    names[_GROUPS_HEADING] = [entry.setting.name for entry in GROUP_CONFIGS]
    names[_CLIENT_METRICS_HEADING] = [setting.name for setting in CLIENT_METRICS_CONFIGS]
    lines = ["## Contents", ""]
    lines += [
        f"- [{section}](#{_anchor(section)})"
        + (": " if listed else "")
        + ", ".join(f"[`{name}`](#{_anchor(name)})" for name in listed)
        for section, listed in names.items()
    ]
    return "\n".join(lines) + "\n"


def _anchor(heading: str) -> str:
    """Return the anchor that GitHub gives a heading of letters, digits, dots, hyphens and blanks."""
    return heading.lower().replace(".", "").replace(" ", "-")


def _linked(text: str) -> str:
    """Return what a setting says with links to the pages that it names."""
    return re.sub(r"`seqgate help ([\w-]+)`", r"[\1.md](\1.md)", text)


def _topic_entry(setting: Setting) -> str:
    default = render(setting.default)
    facts = f"type: {setting.type.name.lower()}; default: {f'`{default}`' if default else 'empty'}"
    effect = "; effect: none" if setting.without_effect else ""
    return f"### `{setting.topic_name}`\n\n{_linked(setting.doc)}\n\n- {facts}; allowed: {setting.allowed()}{effect}\n"


def _kept_row(setting: Setting) -> str:
    default = render(setting.default)
    cells = (
        f"`{setting.name}`",
        setting.type.name.lower(),
        "unset" if default is None else f"`{default}`" if default else "empty",
        setting.allowed(),
        "one broker" if setting.name in OF_ONE_BROKER else "one or all brokers",
        setting.doc.removeprefix("Kept without effect: ").removesuffix("."),
    )
    return f"| {' | '.join(cells)} |\n"


def _group_entry(entry: GroupConfig) -> str:
    setting = entry.setting
    default = " or ".join(f"`{fallback.name}`" for fallback in setting.fallbacks)
    rows = [("type", setting.type.name.lower()), ("default", default or f"`{render(setting.default)}`")]
    if entry.at_least is not None and entry.at_most is not None:
        rows.append(("allowed", f"from `{entry.at_least}` to `{entry.at_most}`"))
    elif setting.check is None:
        rows.append(("allowed", setting.allowed()))
    facts = "; ".join(f"{name}: {value}" for name, value in rows)
    return f"### `{setting.name}`\n\n{_linked(setting.doc)}\n\n- {facts}\n"


def _client_metrics_entry(setting: Setting) -> str:
    default = render(setting.default)
    facts = f"type: {setting.type.name.lower()}; default: {f'`{default}`' if default else 'empty'}"
    return f"### `{setting.name}`\n\n{_linked(setting.doc)}\n\n- {facts}\n"


def _alterable(setting: Setting) -> str:
    if setting.dynamic_on_listener:
        return "for one listener of one node, `listener.name.NAME.` before the name"
    return "yes" if setting.dynamic else "no"


def _setting_entry(setting: Setting) -> str:
    default = render(setting.default)
    rows = [
        ("type", setting.type.name.lower()),
        ("default", "unset" if default is None else f"`{default}`" if default else "empty"),
        ("allowed", setting.allowed()),
        ("environment", f"`{setting.environment_name}`"),
    ]
    if setting.topic_name is not None:
        rows.append(("on a topic", f"`{setting.topic_name}`"))
    rows.append(("alterable", _alterable(setting)))
    if setting.without_effect:
        rows.append(("effect", "none"))
    facts = "; ".join(f"{name}: {value}" for name, value in rows)
    return f"### `{setting.name}`\n\n{_linked(setting.doc)}\n\n- {facts}\n"


# docs/commands.md

WIDTH: Final = 100
"""Columns of the help on the page."""
_COMMANDS_INTRODUCTION: Final = """\
# Commands

Look up here what each command of `seqgate` does, its options and its exit codes. `seqgate COMMAND -h` prints the same.

```bash
seqgate topics create orders --partitions 6
echo '17:{"amount": 5}' | seqgate produce orders --key-separator :
seqgate consume orders --show partition,offset,key,value
seqgate configs set topic orders retention.ms=86400000
```

Written by `make docs` from the commands themselves; a test compares the two.

## Which cluster a command asks

| commands | ask |
| --- | --- |
| `topics`, `configs`, `acls`, `quotas`, `produce`, `consume` | the cluster at `--bootstrap HOST:PORT` over the Kafka protocol: a gateway on any machine, or Apache Kafka. Without `--bootstrap` the gateway that runs on `--data-dir` (`./data` unless configured), otherwise 127.0.0.1:9092 |
| `groups`, `transactions`, `producers` | with `--bootstrap` the same; without it the gateway that runs on `--data-dir`, over its control socket ([control-socket.md](control-socket.md)) |
| `cluster status`, `cluster verify`, `cluster import` | the bucket at `--cluster ADDRESS` itself, whether a gateway runs or not ([cluster.md](cluster.md#look-into-the-bucket)) |
| `cluster gateways`, `cluster move`, `cluster drain`, `cluster undrain` | as `groups` |
| `faults` | the test control at `--control HOST:PORT` ([testing.md](testing.md#any-language)) |
| `certify` | nobody: each of its runs has a broker of its own ([certify.md](certify.md)) |
| the others | the gateway that runs on `--data-dir`, over its control socket, or the directory of a stopped one |

`SEQGATE_BOOTSTRAP` names the cluster for all commands that have `--bootstrap`, unless `--data-dir` or `--config` names a gateway.
A cluster with TLS or logins needs `--command-config FILE` beside `--bootstrap`, a file of Kafka's client properties
([security.md](security.md#commands)).

The Kafka protocol reports less than the control socket: not when an offset was committed, which offsets a transaction holds, which records of a
share group are acquired, or which batches a gateway retains of a producer. Such fields are `-` in tables and `null` in JSON.

## Output

Tables fit the terminal. Where no terminal reads them, each row is one line, however long. `--json` prints one JSON document (`consume`: one
JSON object per record). Errors are one sentence on the standard error.

| exit code | meaning |
| ---: | --- |
| 0 | done; `consume --follow` was ended by Ctrl-C |
| 1 | the command failed, or was refused in part; `status`, `sweep`, `repair`, `cluster verify`, `transactions find-hanging` and `certify`: something is wrong |
| 2 | the command line is wrong; nothing was asked |
| 130 | ended by Ctrl-C |

A command that can't be undone shows what it would do and asks: `topics delete`, `topics alter --partitions`, `users remove`, `cluster drain`, `acls remove`, `groups reset` and `delete`, `transactions abort`, `dead-letters`,
`pids claim` and `move`, `sweep`, `repair`. `--dry-run` only shows it, `--yes` does it without asking; where there is no terminal to answer on, nothing is changed without `--yes`,
and the command exits with 1. With `--json` it never asks, and only reports without `--yes`. `--execute`, `--remove` and `--apply` are old spellings of `--yes`.

While a command waits, it says on the standard error what is wrong, once: `lost 127.0.0.1:9092 (connection refused); still trying`, a gateway that refuses
with its reason, one that does not answer; and `127.0.0.1:9092 works again`. One that asks over the control socket says after two
seconds that the gateway, with its process id, has not answered yet. `--timeout SECONDS` says when it gives up, and its last sentence has the last error.
What a broker refuses because a leader or a coordinator moves is asked again, without `--timeout` for five seconds.
`produce` on a terminal ends with Ctrl-D; Ctrl-C ends it, too, and it says what is stored.

## Completion

`seqgate --install-completion` installs the completion of commands, options, and names of topics and groups for bash, zsh, fish or PowerShell, whichever runs it;
`seqgate --show-completion` prints it instead.
"""


def commands_page(app: typer.Typer) -> str:
    """Return the page of all commands, as Markdown."""
    sections = [_COMMANDS_INTRODUCTION]
    for words, text in _helps(typer.main.get_command(app), "seqgate", None):
        sections.append(f"\n## {words}\n\n```text\n{text}\n```\n")
    return "".join(sections)


def _helps(command: Any, name: str, parent: Any) -> Iterator[tuple[str, str]]:
    """Yield the words and the help of each command."""
    context = command.context_class(
        command,
        info_name=name,
        parent=parent,
        terminal_width=WIDTH,
        help_option_names=CONTEXT["help_option_names"],
    )
    if not isinstance(command, TyperGroup):
        yield context.command_path, command.get_help(context)
        return
    for word in command.list_commands(context):
        yield from _helps(command.get_command(context, word), word, context)


# docs/control-socket.md

_SOCKET_INTRODUCTION: Final = f"""\
# The control socket

`seqgate` commands ask a running gateway over `control.sock` in its data directory, a Unix domain socket that only the owner of the
gateway's process may open. Use the commands with `--json` in scripts: the socket belongs to one release, and its operations may change
with the next one.

    echo '{{"operation":"status"}}' | nc -U data/control.sock

A connection carries one request and one answer, each a line of JSON: at most {MAX_REQUEST_BYTES:,} bytes of request and
{MAX_ANSWER_BYTES:,} bytes of answer. The answer is `{{"result": …}}`, or `{{"error": "a sentence"}}`. Lists come in pages of `limit`
rows, {PAGE_ROWS:,} unless the request says otherwise and at most {MAX_PAGE_ROWS:,}.

Written by `make docs` from the list in `gateway/admin/operations.py`; a test compares the two.
Fields with a `?` are optional. *Stopped*: the command also answers from a data directory that no gateway has open. (`seqgate sweep` sweeps
such a directory in its own process.)

| operation | fields | what the gateway does or answers | stopped |
| --- | --- | --- | --- |
"""


def control_socket_page(operations: Iterable[ControlOperation[Any]]) -> str:
    """Return the page about the control socket, as Markdown."""
    return _SOCKET_INTRODUCTION + "".join(f"{_operation_row(operation)}\n" for operation in operations)


def _operation_row(operation: ControlOperation[Any]) -> str:
    request = operation.request
    fields = ", ".join(
        f"`{field.encode_name}`" + ("" if field.required else "?")
        for field in msgspec.structs.fields(request)
    )
    text = " ".join((inspect.getdoc(request) or "").split())
    return f"| `{request.operation_name()}` | {fields} | {text} | {'yes' if operation.stopped else ''} |"


# docs/metrics.md

_METRICS_INTRODUCTION: Final = """\
# Metrics

Let Prometheus scrape a gateway, and look up here what each metric tells.

```bash
seqgate serve --set seqgate.metrics.listener=127.0.0.1:9644
curl http://127.0.0.1:9644/metrics
```

`/metrics` answers in the text format of Prometheus, or of OpenMetrics where the client asks for that. `/healthz` answers 200 while the
process answers. `/readyz` answers 200 while the gateway can take writes, otherwise 503 with a sentence for each reason. The listener has no
login: let only trusted programs reach it. [observability.md](observability.md) says what to watch, and which alert means what.

Each of several workers listens on a port of its own, one after the other, and tells what it does itself. Counters begin at zero with each
start of the gateway. Durations are histograms in seconds with buckets from 0.1 ms to 30 s.

Written by `make docs` from the table in `gateway/metrics/table.py`; a test compares the two.
"""


def metrics_page() -> str:
    """Return the page of all metrics as Markdown."""
    return (
        "\n".join(
            [_METRICS_INTRODUCTION, *(line for subject in SUBJECTS for line in _section(subject)), *_PROCESS]
        )
        + "\n"
    )


_PROCESS: Final = (
    "## The process",
    "",
    (
        "`prometheus-client` adds what it tells of every Python process: `process_cpu_seconds_total`, "
        "`process_resident_memory_bytes`,"
    ),
    "`process_open_fds`, `process_max_fds`, `process_start_time_seconds`, `python_gc_*` and `python_info`.",
)


def _section(subject: Subject) -> Iterator[str]:
    yield f"## {subject.title}"
    yield ""
    yield "| metric | type | labels | what it tells |"
    yield "| --- | --- | --- | --- |"
    for metric in subject.metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        yield f"| `{metric.name}` | {metric.kind} | {labels} | {metric.doc} |"
    yield ""


# docs/certify-scripts.md

_SCRIPTS_INTRODUCTION: Final = """\
# The scripts of `seqgate certify`

Look up here what each script does to an application, and what a correct producer does then. `seqgate certify --list` prints the same;
`seqgate certify --command "..." --scripts NAME` runs one of them. [certify.md](certify.md) says how an application is judged.

In each script no record may be lost, doubled or reordered. In those with a * a correct producer may also report a failure, and end with
another exit code than 0.

Written by `make docs` from the scripts themselves; a test compares the two.

| script | what happens | a correct producer |
| --- | --- | --- |
"""


def scripts_page() -> str:
    """Return the page of all scripts, as Markdown."""
    rows = [
        f"| `{script.name}`{'*' if script.may_give_up else ''} | {script.happens} | {script.correct} |\n"
        for script in SCRIPTS
    ]
    return _SCRIPTS_INTRODUCTION + "".join(rows)


# docs/spark-options.md


def options_table() -> str:
    """Return the table of options in Markdown, for the documentation."""
    lines = ["| option | batch read | stream read | batch write | stream write | default | meaning |"]
    lines.append("| --- | --- | --- | --- | --- | --- | --- |")
    for option in OPTIONS:
        marks = ["✓" if use & option.uses else "" for use in USE_NAMES]
        cells = [f"`{option.name}`", *marks, option.default or "", option.meaning.replace("|", "\\|")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def options_page() -> str:
    """Return the page docs/spark-options.md."""
    return (
        "# Options of Spark's Kafka connector\n\n"
        "Look up here which options `source()` and `sink()` accept, for which reads and writes:\n\n"
        '    source(spark, "127.0.0.1:9092", "flights", stream=True, maxOffsetsPerTrigger=100000)\n\n'
        "Names that begin with `kafka.` are settings of the Kafka client and are passed on. Any other name "
        "is refused, and "
        "the error names the nearest valid option.\n\n"
        f"{options_table()}\n"
        "The page is generated by `make docs` from `spark_kafka_compat/options.py`.\n"
    )


if __name__ == "__main__":
    sys.exit(main())
