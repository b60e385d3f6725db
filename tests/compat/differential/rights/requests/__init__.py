"""The rows of the table, by what their requests are about. Importing this package fills the table."""

from tests.compat.differential.rights.requests import (
    administration,
    cluster,
    configurations,
    groups,
    members,
    metadata,
    offsets,
    records,
    security,
    sharing,
    topics,
    transactions,
)

__all__ = [
    "administration",
    "cluster",
    "configurations",
    "groups",
    "members",
    "metadata",
    "offsets",
    "records",
    "security",
    "sharing",
    "topics",
    "transactions",
]
