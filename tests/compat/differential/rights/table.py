"""The table of requests whose answers depend on rights: each row is an API in one version, the rights that it
needs, and a function that sends requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from seqgate.gateway.security.acls.access import Operation, ResourceType
from tests.compat.differential.peer import Refused, Transcript, Unsettled
from tests.compat.differential.rights.endpoints import Endpoint
from tests.compat.differential.rights.stage import Ask, Right, Stage, steps

ROWS: dict[str, Row] = {}

READ_TOPIC = Right(Operation.READ, ResourceType.TOPIC)
WRITE_TOPIC = Right(Operation.WRITE, ResourceType.TOPIC)
CREATE_TOPIC = Right(Operation.CREATE, ResourceType.TOPIC)
DELETE_TOPIC = Right(Operation.DELETE, ResourceType.TOPIC)
ALTER_TOPIC = Right(Operation.ALTER, ResourceType.TOPIC)
DESCRIBE_TOPIC = Right(Operation.DESCRIBE, ResourceType.TOPIC)
DESCRIBE_TOPIC_CONFIGS = Right(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)
ALTER_TOPIC_CONFIGS = Right(Operation.ALTER_CONFIGS, ResourceType.TOPIC)
READ_GROUP = Right(Operation.READ, ResourceType.GROUP)
DELETE_GROUP = Right(Operation.DELETE, ResourceType.GROUP)
DESCRIBE_GROUP = Right(Operation.DESCRIBE, ResourceType.GROUP)
DESCRIBE_GROUP_CONFIGS = Right(Operation.DESCRIBE_CONFIGS, ResourceType.GROUP)
ALTER_GROUP_CONFIGS = Right(Operation.ALTER_CONFIGS, ResourceType.GROUP)
WRITE_TRANSACTION = Right(Operation.WRITE, ResourceType.TRANSACTIONAL_ID)
DESCRIBE_TRANSACTION = Right(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
CREATE_CLUSTER = Right(Operation.CREATE, ResourceType.CLUSTER)
ALTER_CLUSTER = Right(Operation.ALTER, ResourceType.CLUSTER)
DESCRIBE_CLUSTER = Right(Operation.DESCRIBE, ResourceType.CLUSTER)
CLUSTER_ACTION = Right(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
DESCRIBE_CLUSTER_CONFIGS = Right(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
ALTER_CLUSTER_CONFIGS = Right(Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
IDEMPOTENT_WRITE = Right(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)


@dataclass(frozen=True)
class Row:
    """One row: `ask` sends its requests once for each step that its rights make."""

    name: str
    rights: tuple[Right, ...]
    ask: Ask
    prepare: Ask | None

    @property
    def user(self) -> str:
        """The user whose entries this row alone changes."""
        return f"user-{list(ROWS).index(self.name)}"

    def run(self, endpoint: Endpoint, token: str) -> Transcript:
        """Send the requests of every step to one endpoint; the names of resources begin with `token`."""
        legal = "".join(character if character.isalnum() else "-" for character in self.name)
        stage = Stage(endpoint, self.user, f"{token}-{legal}-")
        try:
            if self.prepare is not None:
                self.prepare(stage)
            for step in steps(self.rights):
                stage.enter(step)
                stage.user.note(step.label)
                self.ask(stage)
            stage.grant(set())
        except (Refused, Unsettled) as error:
            stage.user.stopped(str(error))
        finally:
            stage.close()
        return stage.transcript


def row(
    *rights: Right, cases: Mapping[str, Any] | Iterable[int] | None = None, prepare: Ask | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a function to the table: once, or once per case. Cases are versions or named values."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        theme = function.__module__.rpartition(".")[2]
        named = cases if isinstance(cases, Mapping) else {f"v{version}": version for version in cases or ()}
        asks: dict[str, Ask] = {
            f"[{case}]": lambda stage, value=value: function(stage, value)  # type: ignore[misc]
            for case, value in named.items()
        }
        for case, ask in (asks or {"": function}).items():
            name = f"{theme}.{function.__name__}{case}"
            assert name not in ROWS, f"two rows named {name}"
            ROWS[name] = Row(name, rights, ask, prepare)
        return function

    return add
