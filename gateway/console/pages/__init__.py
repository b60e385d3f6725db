"""The one list of pages for the navigation, the routes and the tests. A page is a module and a template."""

from __future__ import annotations

from typing import Final

from seqgate.gateway.console.page import Page
from seqgate.gateway.console.pages import (
    access,
    backlog,
    clients,
    cluster,
    gateway,
    groups,
    manual,
    overview,
    producer_ids,
    producers,
    records,
    search,
    topics,
    transactions,
)

PAGES: Final[tuple[Page, ...]] = (
    overview.PAGE,
    topics.PAGE,
    records.PAGE,
    backlog.DELAYED_PAGE,
    producers.PRODUCERS_PAGE,
    producer_ids.PAGE,
    transactions.PAGE,
    producers.NAMES_PAGE,
    groups.PAGE,
    backlog.BACKLOG_PAGE,
    clients.CLIENTS_PAGE,
    access.USERS_PAGE,
    access.ACLS_PAGE,
    clients.QUOTAS_PAGE,
    cluster.PAGE,
    gateway.LIMITS_PAGE,
    gateway.LOGS_PAGE,
    search.PAGE,
    manual.PAGE,
)
