"""`seqgate backlog`: each group's unread backlog in a topic, its effect on producers, and skipped records."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import typer

from seqgate.gateway.admin.backlog.messages import (
    BacklogPage,
    BacklogReader,
    BacklogRequest,
    PartitionBacklog,
)
from seqgate.gateway.admin.completion import topic_names
from seqgate.gateway.admin.options import AsJson, ConfigFile, DataDir, asking
from seqgate.gateway.admin.printing import (
    Column,
    count,
    counted,
    duration,
    print_json,
    print_lines,
    print_table,
    shown,
)

NO_LIMIT: Final = -1
ELSEWHERE: Final = "elsewhere"


def backlog(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=topic_names, show_default=False)],
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show each group's unread backlog in a topic, and the effect of quotas.

    \b
    Columns:
      group      reads the partition; * marks the slowest group, which decides about quotas
      offset     the next record that the group will read
      unread     bytes from there to the end of the log
      age        of the first record that the slowest group has not read
      skipped    records that the group was moved over unread since the gateway started
      producers  open, or holding or refusing while a quota is exceeded; and batches refused since the start

    docs/backlog.md describes quotas and TTL.
    """  # noqa: D301 - \b keeps the lines of the list apart
    with asking(config_file, data_dir) as client:
        pages = client.ask_all(BacklogRequest(topic))
    rows = [row for page in pages for row in page.partitions]
    if as_json:
        print_json(msgspec.structs.replace(pages[-1], partitions=rows))
        return
    _print_settings(pages[-1])
    _print_rows(rows)
    if pages[-1].waiting_requests:
        waiting = counted(pages[-1].waiting_requests, "request")
        print_lines(f"{waiting} to all topics wait ({pages[-1].waiting_bytes:,} bytes).")


def _print_settings(page: BacklogPage) -> None:
    limits = []
    if page.quota_bytes > NO_LIMIT:
        limits.append(f"backlog.quota.bytes {page.quota_bytes:,}")
    if page.quota_ms > NO_LIMIT:
        limits.append(f"backlog.quota.ms {page.quota_ms:,} ({duration(page.quota_ms)})")
    if limits:
        limits.append(f"backlog.quota.policy {page.policy}")
    if page.ttl_ms > NO_LIMIT:
        limits.append(f"message.ttl.ms {page.ttl_ms:,} ({duration(page.ttl_ms)})")
    print_lines(f"Topic {shown(page.topic)}: {', '.join(limits) or 'no quota, no TTL'}.", "")


def _print_rows(rows: list[PartitionBacklog]) -> None:
    headings = ("parti-\ntion", "group", "offset", "unread", "age", "skipped", "producers")
    numbers = {"parti-\ntion", "offset", "unread", "age", "skipped"}
    print_table(
        [Column(heading, number=heading in numbers) for heading in headings],
        [cells for row in rows for cells in _cells(row)],
    )


def _cells(row: PartitionBacklog) -> list[tuple[str, ...]]:
    refused = f", {row.refused:,} refused" if row.refused else ""
    producers = row.verdict + (f" ({row.exceeded})" if row.exceeded else "") + refused
    if row.verdict == ELSEWHERE:
        return [(str(row.partition), "another gateway leads it", "-", "-", "-", "-", "-")]
    if not row.readers:
        return [(str(row.partition), "nobody reads it", "-", "-", "-", "-", producers)]
    return [
        (str(row.partition), *_reader_cells(row, reader), producers if number == 0 else "")
        for number, reader in enumerate(sorted(row.readers, key=lambda reader: reader.offset))
    ]


def _reader_cells(row: PartitionBacklog, reader: BacklogReader) -> tuple[str, ...]:
    is_slowest = reader.group == row.slowest
    age = "-" if row.age_ms is None or not is_slowest else duration(row.age_ms)
    name = shown(reader.group) + ("*" if is_slowest else "") + (" (share)" if reader.is_share else "")
    return name, str(reader.offset), count(reader.backlog_bytes), age, count(sum(reader.skipped.values()))
