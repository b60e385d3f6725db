"""The page about the control socket, written from the list of operations."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import typer
from typer.core import TyperGroup

from seqgate.gateway.admin.help import CONTEXT
from seqgate.gateway.admin.operation import Operation
from seqgate.gateway.admin.request import MAX_ANSWER_BYTES, MAX_PAGE_ROWS, MAX_REQUEST_BYTES, PAGE_ROWS

_INTRODUCTION: Final = f"""\
# The control socket

`seqgate` commands ask a running gateway over `control.sock` in its data directory, a Unix domain socket that only the owner of the
gateway's process may open. Use the commands with `--json` in scripts: the socket belongs to one release, and its operations may change
with the next one.

    echo '{{"operation":"status"}}' | nc -U data/control.sock

A connection carries one request and one answer, each a line of JSON: at most {MAX_REQUEST_BYTES:,} bytes of request and
{MAX_ANSWER_BYTES:,} bytes of answer. The answer is `{{"result": …}}`, or `{{"error": "a sentence"}}`. Lists come in pages of `limit`
rows, {PAGE_ROWS:,} unless the request says otherwise and at most {MAX_PAGE_ROWS:,}.

Written by `python -m seqgate.gateway.documentation docs` (`make docs`) from the list in `gateway/admin/operations.py`; a test compares the two.
Fields with a `?` are optional. *Stopped*: the command also answers from a data directory that no gateway has open. (`seqgate sweep` sweeps
such a directory in its own process.)

| operation | fields | what the gateway does or answers | stopped |
| --- | --- | --- | --- |
"""


def control_socket_page(operations: Iterable[Operation[Any]]) -> str:
    """Return the page about the control socket, as Markdown."""
    return _INTRODUCTION + "".join(f"{_row(operation)}\n" for operation in operations)


def _row(operation: Operation[Any]) -> str:
    request = operation.request
    fields = ", ".join(
        f"`{field.encode_name}`" + ("" if field.required else "?")
        for field in msgspec.structs.fields(request)
    )
    text = " ".join((inspect.getdoc(request) or "").split())
    return f"| `{request.operation_name()}` | {fields} | {text} | {'yes' if operation.stopped else ''} |"


# The page of all commands, written from their help.

WIDTH: Final = 100
"""Columns of the help on the page."""
_COMMANDS_PAGE_INTRODUCTION: Final = """\
# Commands

Look up here what each command of `seqgate` does, its options and its exit codes. `seqgate COMMAND -h` prints the same.

```bash
seqgate topics create orders --partitions 6
echo '17:{"amount": 5}' | seqgate produce orders --key-separator :
seqgate consume orders --show partition,offset,key,value
seqgate configs set topic orders retention.ms=86400000
```

Written by `python -m seqgate.gateway.documentation docs` (`make docs`) from the commands themselves; a test compares the two.

## Which cluster a command asks

| commands | ask |
| --- | --- |
| `topics`, `configs`, `acls`, `quotas`, `produce`, `consume` | the cluster at `--bootstrap HOST:PORT` over the Kafka protocol: a gateway on any machine, or Apache Kafka. Without `--bootstrap` the gateway that runs on `--data-dir` (`./data` unless configured), otherwise 127.0.0.1:9092 |
| `groups`, `transactions`, `producers` | with `--bootstrap` the same; without it the gateway that runs on `--data-dir`, over its control socket ([control-socket.md](control-socket.md)) |
| `cluster` | the bucket at `--cluster ADDRESS` itself, whether a gateway runs or not ([cluster.md](cluster.md#look-into-the-bucket)) |
| `faults` | the test control at `--control HOST:PORT` ([testing.md](testing.md#any-language)) |
| `certify` | nobody: each of its runs has a broker of its own ([certify.md](certify.md)) |
| the others | the gateway that runs on `--data-dir`, over its control socket, or the directory of a stopped one |

A cluster with TLS or logins needs `--command-config FILE` beside `--bootstrap`, a file of Kafka's client properties
([security.md](security.md#commands)).

The Kafka protocol reports less than the control socket: not when an offset was committed, which offsets a transaction holds, which records of a
share group are acquired, or which batches a gateway remembers of a producer. Such fields are `-` in tables and `null` in JSON.

## Output

Tables fit the terminal. Where no terminal reads them, each row is one line, however long. `--json` prints one JSON document (`consume`: one
JSON object per record). Errors are one sentence on the standard error.

| exit code | meaning |
| ---: | --- |
| 0 | done; `consume --follow` was ended by Ctrl-C |
| 1 | the command failed, or was refused in part; `status`, `sweep`, `repair`, `cluster verify`, `transactions find-hanging` and `certify`: something is wrong |
| 2 | the command line is wrong; nothing was asked |
| 130 | ended by Ctrl-C |

## Completion

`seqgate --install-completion` installs the completion of commands, options, and names of topics and groups for bash, zsh, fish or PowerShell, whichever runs it;
`seqgate --show-completion` prints it instead.
"""


def commands_page(app: typer.Typer) -> str:
    """Return the page of all commands, as Markdown."""
    sections = [_COMMANDS_PAGE_INTRODUCTION]
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
