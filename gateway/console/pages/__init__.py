"""The one list of pages: the navigation, the routes and the tests read it. A page is one module here, and one template."""

from __future__ import annotations

from typing import Final

from gateway.console.page import Page
from gateway.console.pages import (
    access_acls,
    access_quotas,
    access_users,
    backlog,
    clients,
    cluster,
    delayed,
    groups,
    limits,
    logs,
    names,
    overview,
    producer_ids,
    producers,
    records,
    topics,
    transactions,
)

PAGES: Final[tuple[Page, ...]] = (
    overview.PAGE,
    topics.PAGE,
    records.PAGE,
    delayed.PAGE,
    producers.PAGE,
    producer_ids.PAGE,
    transactions.PAGE,
    names.PAGE,
    groups.PAGE,
    backlog.PAGE,
    clients.PAGE,
    access_users.PAGE,
    access_acls.PAGE,
    access_quotas.PAGE,
    cluster.PAGE,
    limits.PAGE,
    logs.PAGE,
)
"""The pages, in the order of the navigation."""
