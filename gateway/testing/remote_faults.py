"""The faults of a broker in another process: the methods of `Faults`, asked over HTTP."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol, Self
from urllib.parse import quote

from gateway.testing.effects import Kind

_POLL_S: Final = 0.01


class Ask(Protocol):
    """Asks the test control of the broker."""

    def __call__(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any: ...


class RemoteFault:
    """A fault that was ordered."""

    def __init__(self, ask: Ask, row: Mapping[str, Any]) -> None:
        self._ask = ask
        self._path = f"/faults/{row['id']}"
        self._text = str(row["text"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def seen(self) -> int:
        """The requests of the choice so far."""
        return int(self._ask("GET", self._path)["seen"])

    @property
    def struck(self) -> int:
        """The requests that the fault has struck so far."""
        return int(self._ask("GET", self._path)["struck"])

    def end(self) -> None:
        """Strike no more requests, and repair what is broken."""
        self._ask("DELETE", self._path)

    def wait_until_struck(self, times: int = 1, timeout_s: float = 30.0) -> None:
        """Wait until the fault has struck so often. Raises TimeoutError."""
        deadline_s = time.monotonic() + timeout_s
        while (struck := self.struck) < times:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{self} has struck {struck} times in {timeout_s:g} s, not {times}")
            time.sleep(_POLL_S)

    def __str__(self) -> str:
        return self._text


class RemoteFaults:
    """Each method orders the fault of its name, with the arguments of the method of `Faults`."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def order(self, fault: str, **said: Any) -> RemoteFault:
        """Order a fault by its name. Raises ValueError for a wrong order, LookupError for a topic that does not exist."""
        return RemoteFault(self._ask, self._ask("POST", "/faults", {"fault": fault, **said}))

    def drop_answer(self, **said: Any) -> RemoteFault:
        """Carry requests out without answering."""
        return self.order("drop_answer", **said)

    def close(self, **said: Any) -> RemoteFault:
        """Close the connection in place of carrying requests out."""
        return self.order("close", **said)

    def error(self, code: str, **said: Any) -> RemoteFault:
        """Refuse requests with an error, such as "NOT_ENOUGH_REPLICAS"."""
        return self.order("error", code=code, **said)

    def delay(self, milliseconds: int, **said: Any) -> RemoteFault:
        """Answer requests later."""
        return self.order("delay", milliseconds=milliseconds, **said)

    def corrupt(self, **said: Any) -> RemoteFault:
        """Flip one bit of the records in answers to fetches."""
        return self.order("corrupt", **said)

    def throttle(self, milliseconds: int, **said: Any) -> RemoteFault:
        """Tell clients in answers to wait."""
        return self.order("throttle", milliseconds=milliseconds, **said)

    def not_leader(self, **said: Any) -> RemoteFault:
        """Refuse Produce requests with NOT_LEADER_OR_FOLLOWER."""
        return self.order("not_leader", **said)

    def coordinator_moves(self, **said: Any) -> RemoteFault:
        """Refuse requests with NOT_COORDINATOR."""
        return self.order("coordinator_moves", **said)

    def watch(self, **said: Any) -> RemoteFault:
        """Count requests and do nothing to them."""
        return self.order("watch", **said)

    def script(self, seed: int, *, kinds: Collection[Kind] | None = None, **said: Any) -> RemoteFault:
        """Let requests fail, each in a way that the seed chooses."""
        if kinds is not None:
            said["kinds"] = [kind.name.lower() for kind in kinds]
        return self.order("script", seed=seed, **said)

    def partition_offline(self, topic: str, partition: int = 0) -> RemoteFault:
        """Take a partition offline until the end of the fault."""
        return self.order("partition_offline", topic=topic, partition=partition)

    def disk_full(self) -> RemoteFault:
        """Let the disk seem to be full until the end of the fault."""
        return self.order("disk_full")

    def expire_producer(self, producer_id: int) -> int:
        """Forget a producer in all partitions; return in how many it was known."""
        return int(self._ask("POST", f"/producers/{producer_id}/expire")["partitions"])

    def fence(self, transactional_id: str) -> None:
        """Fence the producer of a transactional id. Raises LookupError."""
        self._ask("POST", f"/transactional-ids/{quote(transactional_id)}/fence")

    def reset(self) -> None:
        """End all faults."""
        self._ask("DELETE", "/faults")
