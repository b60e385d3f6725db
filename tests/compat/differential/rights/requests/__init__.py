"""The rows of the table, by what their requests are about. Importing this package fills the table."""

from tests.compat.differential.rights.requests import (
    administration,
    cluster,
    configurations,
    metadata,
    records,
    security,
    topics,
)

__all__ = [
    "administration",
    "cluster",
    "configurations",
    "metadata",
    "records",
    "security",
    "topics",
]
