"""The common parts of the streaming programs: their options, how they begin, and the wait for the end."""

from __future__ import annotations

import argparse
import re
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from seqgate.spark_kafka_compat.batch_reader import check_readable
from seqgate.spark_kafka_compat.checkpoint_topics import subscribed
from seqgate.spark_kafka_compat.logins import PLAINTEXT, PROTOCOL, Unchecked, login_of
from seqgate.spark_kafka_compat.options import OptionValue
from seqgate.spark_kafka_compat.partitions import topics_in
from seqgate.spark_kafka_compat.session import (
    EndpointError,
    RecreatedTopicError,
    SparkCompatError,
    installed_pyspark_version,
    session,
    shown_coordinates,
)
from seqgate.spark_kafka_compat.wire import ask_first

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DONE, QUERY_FAILED, NOT_BEGUN = 0, 1, 2
SILENCE_S = 2.0
"""Time (s) without an answer after which a program says what it waits for."""
_OWN_ERROR = re.compile(rf"{SparkCompatError.__module__}\.\w+: (.+)")
_RECREATED = f"{RecreatedTopicError.__module__}.{RecreatedTopicError.__name__}: "
_MOVED = re.compile(r"Partition \S+ offset was changed from \d+ to \d+")
_RAISED = re.compile(r"^(?:Caused by: )?((?:[\w$]+\.)*[\w$]*(?:Error|Exception): .+)$", re.MULTILINE)
_LONGEST_SENTENCE = 500


def program(name: str, description: str | None, arguments: str) -> argparse.ArgumentParser:
    """Return the parser of a program with its endpoint; `arguments` is an example of the others."""
    described = argparse.ArgumentParser(
        prog=f"python -m seqgate.spark_kafka_compat.pipelines.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"On a cluster: spark-submit --packages {shown_coordinates()} {name}.py --bootstrap HOST:PORT "
        f"{arguments}",
    )
    described.add_argument(
        "--bootstrap",
        required=True,
        metavar="HOST:PORT",
        help="the Kafka endpoint: one address, or several separated by commas",
    )
    return described


def add_run(described: argparse.ArgumentParser) -> None:
    """Add the options of a run: its interval, the source, what is printed, and where Spark is."""
    add = described.add_argument
    add(
        "--every",
        metavar="INTERVAL",
        help='run until stopped, with a micro batch every INTERVAL such as "10 seconds" '
        "(default: read the present records and end)",
    )
    add(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of Spark's Kafka source, such as maxOffsetsPerTrigger=100000; can be given several "
        "times",
    )
    add("--verbose", action="store_true", help="print the whole error of a failed query, not its cause alone")
    add("--master", help="Spark master (default: this machine, or the master of spark-submit)")


def check_endpoint(program: str, bootstrap: str, settings: Mapping[str, OptionValue]) -> None:
    """Check what a run needs of the endpoint, because Spark starts for seconds: a broker that answers, the
    topics, the right to read them. `settings` are the options of the source. Raises `SparkCompatError`.

    Where only Spark's own Java can log in, a connection is all that is checked, and the program says why.
    """
    installed_pyspark_version()
    with _reported_wait(program, bootstrap):
        ask_first(bootstrap, lambda _: None)
        try:
            login = login_of(settings)
            if login.protocol != PLAINTEXT:
                ask_first(bootstrap, lambda _: None, login)
            check_readable(bootstrap, subscribed(settings) or (), login)
        except Unchecked as reason:
            print(
                f"{program}: topics and rights are not checked before Spark starts: {reason}",
                file=sys.stderr,
                flush=True,
            )
        except EndpointError as error:
            if not error.retriable or str(settings.get(PROTOCOL, PLAINTEXT)).upper() != PLAINTEXT:
                raise
            raise EndpointError(
                f"{error} A listener with TLS or SASL ends plain connections: land and into_database reach "
                f"it with --option {PROTOCOL}=SASL_SSL and the other kafka.* options; audit can't."
            ) from error


@contextmanager
def _reported_wait(program: str, bootstrap: str) -> Iterator[None]:
    """Say on stderr what the program waits for, once the wait takes longer than `SILENCE_S`."""
    notice = threading.Timer(
        SILENCE_S,
        lambda: print(f"{program}: waiting for an answer of {bootstrap} ...", file=sys.stderr, flush=True),
    )
    notice.daemon = True
    notice.start()
    try:
        yield
    finally:
        notice.cancel()


def begin(program: str, app_name: str, master: str | None) -> SparkSession:
    """Say on stderr that Spark starts, and return a quiet session. Raises `SparkCompatError`."""
    print(f"{program}: starting Spark {installed_pyspark_version()} ...", file=sys.stderr, flush=True)
    return session(app_name, master=master, quiet=True)


def source_options(assignments: Sequence[str]) -> dict[str, OptionValue]:
    """Return the options in arguments NAME=VALUE. Raises `SparkCompatError` for an argument without "="."""
    options: dict[str, OptionValue] = {}
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator:
            raise SparkCompatError(f"--option must have the form NAME=VALUE, not {assignment!r}.")
        options[name] = value
    return options


def refusal(error: Exception) -> str:
    """Return why a program could not begin: an error of ours, or Spark's about an option, a schema or an
    expression. Raises any other error again, which is a mistake of the program.
    """
    if isinstance(error, SparkCompatError):
        return str(error)
    if "pyspark" in sys.modules:
        from pyspark.errors import PySparkException

        if isinstance(error, PySparkException):
            return str(error).strip().partition("\n")[0][:_LONGEST_SENTENCE]
    raise error


def await_end(
    query: StreamingQuery,
    program: str,
    check: Callable[[Collection[str]], None] | None = None,
    *,
    verbose: bool = False,
    progress: Callable[[Sequence[Any]], None] | None = None,
) -> int:
    """Wait until the query ends, or stop the query at SIGTERM or SIGINT; return the exit status.

    `progress` gets Spark's reports of the last hundred micro batches, about once a second and at the end.

    `check` is called about once a second, and when the query failed, with the topics that the query has read.
    A `SparkCompatError` of `check` stops the query with the status `NOT_BEGUN`; so does a
    `RecreatedTopicError` of the query's own functions. With `verbose` the whole error of a failed query is
    printed, not its cause alone.
    """
    from pyspark.errors import StreamingQueryException

    stopping = threading.Event()
    before = {
        number: signal.signal(number, lambda _number, _frame: stopping.set())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        has_ended = False
        while not stopping.is_set() and not has_ended:
            try:
                has_ended = bool(query.awaitTermination(1))
            finally:
                if check is not None:
                    check(topics_read(query))
            if progress is not None:
                progress(query.recentProgress)
    except StreamingQueryException as error:
        if _RECREATED in str(error):
            print(f"{program}: {sentence(error)}", file=sys.stderr)
            return NOT_BEGUN
        print(f"{program}: the query failed: {str(error) if verbose else sentence(error)}", file=sys.stderr)
        return QUERY_FAILED
    except SparkCompatError as error:
        query.stop()
        print(f"{program}: {error}", file=sys.stderr)
        return NOT_BEGUN
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if query.isActive:
        query.stop()
        if progress is not None:
            progress(query.recentProgress)
    return DONE


def shown_topics(settings: Mapping[str, OptionValue]) -> str:
    """Return the topics of a source for a sentence: their names, or the pattern that chooses them."""
    named = subscribed(settings)
    return ", ".join(named) if named else f"the topics {settings.get('subscribePattern')}"


def topics_read(query: StreamingQuery) -> set[str]:
    """Return the topics in the offsets of the query's last micro batch."""
    progress: Any = query.lastProgress
    return topics_in(read.get("endOffset") for read in progress["sources"]) if progress else set()


def sentence(error: Exception) -> str:
    """Return the cause of a failed query in one sentence. Spark's own text is a page of Java."""
    text = str(error)
    own = _OWN_ERROR.search(text)
    if own:
        return own[1]
    moved = _MOVED.search(text)
    if moved:
        return (
            f"{moved[0]}: the topic was deleted and created again, or its records were deleted before they "
            "were read. Begin with a new path and checkpoint, or pass --option failOnDataLoss=false to "
            "continue with the records that exist."
        )
    causes = _RAISED.findall(text)
    cause = causes[-1] if causes else text.strip().splitlines()[0]
    return f"{cause[:_LONGEST_SENTENCE]} (--verbose prints the whole error)"
