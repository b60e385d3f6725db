"""Writes docs/metrics.md from the table of metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gateway.metrics.metric import Subject
from gateway.metrics.table import SUBJECTS

_INTRODUCTION: Final = """\
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

Written by `python -m gateway.documentation docs` (`make docs`) from the table in `gateway/metrics/table.py`; a test compares the two.
"""


def metrics_page() -> str:
    """Return the page of all metrics as Markdown."""
    return (
        "\n".join([_INTRODUCTION, *(line for subject in SUBJECTS for line in _section(subject)), *_PROCESS])
        + "\n"
    )


_PROCESS: Final = (
    "## The process",
    "",
    "`prometheus-client` adds what it tells of every Python process: `process_cpu_seconds_total`, `process_resident_memory_bytes`,",
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
