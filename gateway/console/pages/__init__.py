"""The one list of pages: the navigation, the routes and the tests read it. A page is one module here, and one
template.
"""

from __future__ import annotations

from typing import Final

from seqgate.gateway.console.page import Page
from seqgate.gateway.console.pages import (
    access_acls,
    access_users,
    backlog,
    cluster,
    delayed,
    groups,
    logs,
    names,
    producer_ids,
    producers,
    records,
    topics,
    transactions,
)

PAGES: Final[tuple[Page, ...]] = (
    logs.OVERVIEW_PAGE,
    topics.PAGE,
    records.PAGE,
    delayed.DELAYED_PAGE,
    producers.PAGE,
    producer_ids.PAGE,
    transactions.PAGE,
    names.NAMES_PAGE,
    groups.PAGE,
    backlog.PAGE,
    names.CLIENTS_PAGE,
    access_users.ACCESS_USERS_PAGE,
    access_acls.PAGE,
    access_users.ACCESS_QUOTAS_PAGE,
    cluster.PAGE,
    delayed.LIMITS_PAGE,
    logs.LOGS_PAGE,
)
"""The pages, in the order of the navigation."""
