"""What the streaming pipelines have in common as programs: options of the source, and waiting until they end."""

from __future__ import annotations

import re
import signal
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_kafka_compat.errors import SparkCompatError
from spark_kafka_compat.options import OptionValue

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

DONE, QUERY_FAILED, NOT_BEGUN = 0, 1, 2
_OWN_ERROR = re.compile(rf"{SparkCompatError.__module__}\.\w+: (.+)")


def source_options(assignments: Sequence[str]) -> dict[str, OptionValue]:
    """The options in arguments NAME=VALUE; raises `SparkCompatError` for others."""
    options: dict[str, OptionValue] = {}
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator:
            raise SparkCompatError(f"--option wants NAME=VALUE, not {assignment!r}.")
        options[name] = value
    return options


def await_end(query: StreamingQuery, program: str) -> int:
    """Wait until the query has ended, or SIGTERM or SIGINT ends it; returns the exit status."""
    from pyspark.errors import StreamingQueryException

    stopping = threading.Event()
    before = {
        number: signal.signal(number, lambda _number, _frame: stopping.set())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        while not stopping.is_set() and not query.awaitTermination(1):
            pass
    except StreamingQueryException as error:
        print(f"{program}: the query failed: {_sentence(error)}", file=sys.stderr)
        return QUERY_FAILED
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if query.isActive:
        query.stop()
    return DONE


def _sentence(error: Exception) -> str:
    own = _OWN_ERROR.search(str(error))
    return own[1] if own else str(error)
