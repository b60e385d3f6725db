"""Writes the generated pages: `python -m gateway.documentation docs`; `--check` only tells whether they are up to date.

`docs/protocol-support.md` is made from the list of handlers and what their modules say, `docs/configuration.md`
from the table of settings.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from kio.schema.index import api_key_map

from gateway.config.documentation import configuration_page
from gateway.handlers import APIS
from gateway.handlers.answering.api import Api

AREAS: Final = (
    ("Consumer groups", (8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47, 68, 69)),
    ("Streams groups", (88, 89)),
    ("Share groups", (76, 77, 78, 79, 90, 91, 92)),
    ("Transactions", (24, 25, 26, 27, 28, 65, 66)),
    ("Authentication and authorization", (17, 29, 30, 31, 36, 38, 39, 40, 41, 50, 51)),
    ("Quotas", (48, 49)),
    ("Replicas and the controller quorum", (34, 43, 45, 46, 55, 57, 64, 80, 81)),
    ("Client metrics and configuration resources", (71, 72, 74)),
)
"""The APIs that clients and Kafka's tools send, by what they are for."""
BETWEEN_BROKERS: Final = frozenset((52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82, 83, 84, 85, 86, 87))
"""The APIs that Kafka's brokers and controllers keep to themselves."""

_INTRODUCTION: Final = """\
# Protocol support

Written by `python -m gateway.documentation docs` (`make docs`) from the handlers in `gateway/handlers`; a test compares
the two.

What is in the first table is answered in every version of its range, and advertised in ApiVersions; nothing else is.
The ranges are those of Apache Kafka 4.3. An API or version outside of them closes the connection, as in Kafka; only an
ApiVersions request of an unknown version is answered, in v0 and with error 35 (KIP-511).
"""
_SUMMARY = re.compile(r"\w+ \(key \d+, versions? [^)]*\): (.+)")


def pages() -> dict[str, str]:
    """The generated pages by file name."""
    return {"configuration.md": configuration_page(), "protocol-support.md": protocol_page(APIS)}


def protocol_page(apis: Iterable[Api]) -> str:
    """What is served of the Kafka protocol, as Markdown."""
    served = sorted(apis, key=lambda api: api.key)
    lines = [_INTRODUCTION, "| key | API | versions | what it does |", "| ---: | --- | --- | --- |"]
    lines += [
        f"| {api.key} | [{api.name}](#{api.name.lower()}) | {_versions(api)} | {_told(api)[0]} |"
        for api in served
    ]
    lines += ["", "## In detail"]
    for api in served:
        summary, details = _told(api)
        lines += [
            "",
            f"### {api.name}",
            "",
            f"Key {api.key}, {'version' if api.min_version == api.max_version else 'versions'} {_versions(api)}: {summary}",
        ]
        if details:
            lines += ["", details]
    lines += ["", "## Not served", "", *_not_served({api.key for api in served})]
    return "\n".join(lines) + "\n"


def _versions(api: Api) -> str:
    served = (
        str(api.max_version) if api.min_version == api.max_version else f"{api.min_version}–{api.max_version}"
    )
    if api.advertised_min_version is None or api.advertised_min_version == api.min_version:
        return served
    return f"{served} (advertised from {api.advertised_min_version})"


def _told(api: Api) -> tuple[str, str]:
    """What the handler's module says: its first sentence without the name and key, and the rest."""
    module = inspect.getmodule(api.begin or api.handle)
    first, _, rest = (inspect.getdoc(module) or "").partition("\n\n")
    match = _SUMMARY.fullmatch(" ".join(first.split()))
    if match is None:
        raise ValueError(
            f"the module of {api.name} does not begin with 'Name (key N, versions A–B): what it does.'"
        )
    return match[1], rest.strip("\n")


def _not_served(served: set[int]) -> list[str]:
    lines = []
    for area, keys in AREAS:
        names = [f"{_name(key)} ({key})" for key in keys if key not in served]
        if names:
            lines.append(f"- {area}: {', '.join(names)}")
    lines.append("- What Kafka's brokers and controllers say to each other")
    return lines


def _name(key: int) -> str:
    return "".join(word.capitalize() for word in api_key_map[key].split("_"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages or compare them; the exit code is 1 when they differ under `--check`."""
    parser = argparse.ArgumentParser(prog="python -m gateway.documentation", description=__doc__)
    parser.add_argument("directory", type=Path, help="where the pages lie")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail when a page is not up to date"
    )
    options = parser.parse_args(arguments)
    directory: Path = options.directory
    stale = [name for name, text in pages().items() if _content(directory / name) != text]
    if options.check:
        for name in stale:
            sys.stderr.write(
                f"{directory / name} is not up to date; run: python -m gateway.documentation {directory}\n"
            )
        return 1 if stale else 0
    directory.mkdir(parents=True, exist_ok=True)
    for name in stale:
        (directory / name).write_text(pages()[name], encoding="utf-8")
        sys.stdout.write(f"{directory / name} written\n")
    return 0


def _content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
