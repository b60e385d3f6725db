"""The common parts of the streaming programs: the options of the source, and the wait for the end."""

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
    """Return the options in arguments NAME=VALUE. Raises `SparkCompatError` for an argument without "="."""
    options: dict[str, OptionValue] = {}
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator:
            raise SparkCompatError(f"--option must have the form NAME=VALUE, not {assignment!r}.")
        options[name] = value
    return options


def await_end(query: StreamingQuery, program: str) -> int:
    """Wait until the query ends, or stop the query at SIGTERM or SIGINT; return the exit status."""
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
