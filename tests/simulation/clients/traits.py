"""The values from which the habits of all clients of a run are drawn. A profile changes some of them."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.clients.named_application import KINDS


@dataclass(frozen=True)
class Traits:
    """Chances and choices. The defaults are those of an ordinary run."""

    padding_bytes: tuple[int, ...] = (0, 0, 0, 300, 600)
    """Padding of a full batch; the smallest segments hold 2,000 bytes."""
    reads_again: float = 0.1
    """The chance, per round of a consumer, of reading old records instead of the next ones."""
    producer_pauses_s: tuple[float, ...] = (0.01, 0.1, 0.5)
    transaction_pauses_s: tuple[float, ...] = (0.02, 0.1, 0.5)
    transaction_timeouts_ms: tuple[int, ...] = (1_000, 5_000, 60_000)
    transaction_deaths: tuple[float, ...] = (0, 0.03)
    commits: float = 0.75
    """The chance that a transaction is committed."""
    consumer_groups: float = 0.5
    """The chance that a group uses the consumer protocol (KIP-848)."""
    transforming_groups: float = 0.4
    member_pauses_s: tuple[float, ...] = (0.05, 0.2)
    member_deaths: tuple[float, ...] = (0, 0.02)
    member_stalls: tuple[float, ...] = (0, 0.02)
    member_leaves: float = 0.01
    late_commits: float = 0.0
    change_pauses_s: tuple[float, ...] = (0.2, 1.0)
    """The pauses of an administrator."""
    deletions: int = 3
    """The weight of DeleteRecords among an administrator's changes."""
    application_kinds: tuple[str, ...] = KINDS
    application_pauses_s: tuple[float, ...] = (0.02, 0.1, 0.3)
    application_lives_s: tuple[float, ...] = (0.5, 2.0, 5.0)
    first_name_epochs: tuple[int | None, ...] = (None, 1, 3)
    zombies: tuple[float, ...] = (0.0, 0.3)


ORDINARY = Traits()
