"""The task of an application as the words of its command line: NAME=VALUE, the same for Python and Java.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

NAME_HEADER = "dedup.name"
SEQUENCE_HEADER = "dedup.sequence"
GROUP_PREFIX = "seqgate-name:"
WINDOW = 200
"""The number of records that an application sends before it waits for acknowledgements."""


@dataclass(frozen=True)
class Task:
    """The settings of one start. `unit` numbers lines by `number` or by `position`. With `by_key` the library
    places a line by its first word.

    `believed` is the share of the known lines that the application does not send again: with 1 it continues
    where the gateway says, with 0 it begins at the first line.

    With a transactional id each transaction has `transaction_lines` lines, and is aborted by time after
    `transaction_timeout_ms`.
    """

    library: str
    bootstrap: str
    topic: str
    partitions: int
    name: str
    file: str
    unit: str = "number"
    by_key: bool = False
    codec: str = "none"
    is_idempotent: bool = True
    believed: float = 1.0
    transactional_id: str = ""
    transaction_lines: int = 50
    transaction_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000

    @property
    def group(self) -> str:
        """Return the group whose committed offsets are the sequence ids of the name."""
        return f"{GROUP_PREFIX}{self.name}"

    def words(self) -> list[str]:
        return [f"{name}={value}" for name, value in asdict(self).items()]

    @classmethod
    def of(cls, words: Sequence[str]) -> Task:
        given = dict(word.split("=", 1) for word in words)
        return cls(
            library=given["library"],
            bootstrap=given["bootstrap"],
            topic=given["topic"],
            partitions=int(given["partitions"]),
            name=given["name"],
            file=given["file"],
            unit=given["unit"],
            by_key=given["by_key"] == "True",
            codec=given["codec"],
            is_idempotent=given["is_idempotent"] == "True",
            believed=float(given["believed"]),
            transactional_id=given["transactional_id"],
            transaction_lines=int(given["transaction_lines"]),
            transaction_timeout_ms=int(given["transaction_timeout_ms"]),
            request_timeout_ms=int(given["request_timeout_ms"]),
        )
