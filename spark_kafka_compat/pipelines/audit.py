"""Audits Kafka topics: finds gaps, duplicates and reorderings per producer id and partition. Exit status: 0
when the audit finds nothing, 1 when it finds something, 2 when the audit failed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from seqgate.spark_kafka_compat import source
from seqgate.spark_kafka_compat.options import COMMITTED
from seqgate.spark_kafka_compat.pipelines.streaming import begin, check_endpoint, program, refusal
from seqgate.spark_kafka_compat.sequence_audit import (
    NO_PRODUCER_ID,
    AuditReport,
    RecordVerdict,
    audit_producers,
    audit_records,
)

CLEAN, BREACHED, FAILED = 0, 1, 2
_WIDE = 10_000
_OF_RECORDS = ("producer", "sequence", "scope")
"""The options that only `--records` takes, by the names of the parameters of `audit_records`."""


def parser() -> argparse.ArgumentParser:
    described = program("audit", __doc__, "TOPIC")
    add = described.add_argument
    add("topics", nargs="+", metavar="TOPIC", help="topics to audit")
    add(
        "--records",
        action="store_true",
        help="audit the own numbers of the committed records instead of the batch headers",
    )
    for name, what in (("producer", "producer"), ("sequence", "number")):
        add(
            f"--{name}",
            metavar="EXPR",
            help=f"with --records: the {what} of a record, as header:NAME, json:$.path or SQL "
            f"(default: header:{name})",
        )
    add(
        "--scope",
        choices=("partition", "topic"),
        help="with --records: whether a producer numbers its records per partition or over the topic "
        "(default: partition)",
    )
    add("--compacted", action="store_true", help="the topics are compacted: do not report missing records")
    add(
        "--require-idempotence",
        action="store_true",
        help="without --records: also report records without a producer id, which can't be audited",
    )
    add("--json", action="store_true", help="print JSON instead of tables")
    add("--master", help="Spark master (default: this machine, or the master of spark-submit)")
    return described


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the audit; return the exit status."""
    chosen = _parsed(arguments)
    try:
        check_endpoint("audit", chosen.bootstrap, {"subscribe": ",".join(chosen.topics)})
        spark = begin("audit", "audit " + ",".join(chosen.topics), chosen.master)
        if chosen.records:
            options = {**COMMITTED, "includeHeaders": True}
            frame = source(spark, chosen.bootstrap, chosen.topics, options=options)
            given = {name: value for name in _OF_RECORDS if (value := getattr(chosen, name)) is not None}
            verdicts = audit_records(frame, compacted=chosen.compacted, **given)
            return _show_records(verdicts, chosen.topics, as_json=chosen.json)
        report = audit_producers(spark, chosen.bootstrap, chosen.topics, compacted=chosen.compacted)
        return _show_producers(
            report, chosen.topics, as_json=chosen.json, require_idempotence=chosen.require_idempotence
        )
    except Exception as error:  # noqa: BLE001 - `refusal` raises those that it does not know
        print(f"audit: {refusal(error)}", file=sys.stderr)
        return FAILED


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments. Ends with exit status 2 for options that do not go together."""
    described = parser()
    chosen = described.parse_args(arguments)
    if chosen.records and chosen.require_idempotence:
        described.error("--require-idempotence is about batch headers: leave out --records")
    given = [f"--{name}" for name in _OF_RECORDS if getattr(chosen, name) is not None]
    if given and not chosen.records:
        described.error(f"{', '.join(given)} needs --records")
    return chosen


def _console() -> Console:
    """Return the console for tables. Off a terminal nothing is cut: a row is one line, however wide."""
    return Console() if sys.stdout.isatty() else Console(width=_WIDE, soft_wrap=True)


def _conclusion(records: int, producers: int, topics: Sequence[str], *, clean: bool) -> str:
    """Return the last line: what was audited, and what was found."""
    of_whom = f"{producers:,} producer" + ("" if producers == 1 else "s")
    audited = f"audited {records:,} records of {of_whom} in {', '.join(topics)}"
    return f"{audited}: " + (
        "no gaps, duplicates or reorderings" if clean else "[bold red]the audit found breaches"
    )


def producers_table(report: AuditReport) -> Table:
    """Return the verdicts of all producers as a table for the terminal."""
    columns = ("topic", "partition", "producer id", "batches", "records", "sequences up to")
    table = _table("Producers", columns, ("gaps", "duplicates", "reorderings"))
    for row in report.producers:
        numbered = row.producer_id != NO_PRODUCER_ID
        identity = str(row.producer_id) if numbered else "none"
        last = f"{row.last_sequence:,}" if numbered else "-"
        cells = [row.topic, str(row.partition), identity, f"{row.batches:,}", f"{row.records:,}", last]
        breaches = (row.missing_records, row.duplicate_records, row.reordered_batches)
        table.add_row(*cells, *(_counted(breach) if numbered else "-" for breach in breaches))
    return table


def records_table(verdicts: Iterable[RecordVerdict]) -> Table:
    """Return the verdicts about the records' own numbers as a table for the terminal."""
    columns = ("topic", "partition", "producer", "records", "first", "last")
    table = _table("Records", columns, ("gaps", "duplicates", "reorderings"))
    for row in verdicts:
        place = "all" if row.partition < 0 else str(row.partition)
        numbers = (f"{number:,}" for number in (row.records, row.first_sequence, row.last_sequence))
        breaches = (row.missing_records, row.duplicate_records, row.reordered_records)
        name = Text(row.producer)  # the application's text, which may have brackets
        table.add_row(row.topic, place, name, *numbers, *(_counted(breach) for breach in breaches))
    return table


def _table(title: str, columns: Iterable[str], breaches: Iterable[str]) -> Table:
    table = Table(title=title)
    for name in (*columns, *breaches):
        table.add_column(name, justify="left" if name in {"topic", "producer"} else "right")
    return table


def _counted(breaches: int) -> str:
    return f"[bold red]{breaches:,}" if breaches else "[green]0"


def _show_producers(
    report: AuditReport, topics: Sequence[str], *, as_json: bool, require_idempotence: bool
) -> int:
    unnumbered = report.records_without_producer_id
    clean = report.is_clean and not (require_idempotence and unnumbered)
    if as_json:
        _print_json(
            {
                "clean": clean,
                "records_without_producer_id": unnumbered,
                "producers": [
                    {**row._asdict(), "findings": [finding._asdict() for finding in row.findings]}
                    for row in report.producers
                ],
                "offsets": [row._asdict() for row in report.offsets],
            }
        )
        return CLEAN if clean else BREACHED
    console = _console()
    console.print(producers_table(report))
    for row in report.producers:
        for finding in row.findings:
            console.print(
                f"{row.topic}-{row.partition} producer {row.producer_id} epoch {finding.producer_epoch}: "
                f"{finding.kind}, sequences {finding.first_sequence}-{finding.last_sequence} "
                f"({finding.records:,}), "
                + (f"offset {finding.offset}" if finding.offset >= 0 else "from the beginning")
            )
    for place in report.offsets:
        if not place.is_clean:
            console.print(
                f"{place.topic}-{place.partition}: {place.missing_offsets:,} offsets missing, "
                f"{place.overlapping_offsets:,} used twice"
            )
    if unnumbered:
        console.print(f"{unnumbered:,} records carry no producer id and can't be audited.")
    producers = len({row.producer_id for row in report.producers} - {NO_PRODUCER_ID})
    records = sum(row.records for row in report.producers)
    console.print(_conclusion(records, producers, topics, clean=clean))
    return CLEAN if clean else BREACHED


def _show_records(verdicts: Sequence[RecordVerdict], topics: Sequence[str], *, as_json: bool) -> int:
    clean = all(row.is_clean for row in verdicts)
    if as_json:
        _print_json({"clean": clean, "producers": [row._asdict() for row in verdicts]})
    else:
        console = _console()
        console.print(records_table(verdicts))
        records = sum(row.records for row in verdicts)
        console.print(_conclusion(records, len({row.producer for row in verdicts}), topics, clean=clean))
    return CLEAN if clean else BREACHED


def _print_json(content: object) -> None:
    print(json.dumps(content, indent=2))


if __name__ == "__main__":
    sys.exit(main())
