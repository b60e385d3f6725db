"""The access control entries: list, addition, removal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.admin.acls.command import filter_of
from gateway.admin.acls.remote import create, delete, find
from gateway.admin.request import ControlError
from gateway.console.page import (
    Answer,
    Change,
    Confirmation,
    Look,
    Page,
    Redirect,
    Section,
    View,
    Visit,
    page_of,
)
from gateway.console.pages.access_acls_form import (
    KINDS,
    OPERATIONS,
    ROLES,
    FormEntry,
    entries_of,
    kind_named,
    words,
)
from gateway.security.acls.codes import Operation, PatternType, Permission
from gateway.security.acls.entry import AclEntry, AclFilter

MOST_SHOWN: Final = 50
"""Entries that a confirmation lists; it counts the others."""
_NO_AUTHORIZER: Final = "SECURITY_DISABLED"
"""Kafka's name of the error of a cluster without an authorizer."""
_FIELDS: Final = ("kind", "name", "principal")


def acls(visit: Visit) -> Answer:
    """Show the entries that match the filters, or how to set an authorizer up."""
    given = {field: visit.text(field).strip() for field in _FIELDS}
    found, has_authorizer = _all(visit)
    matching = [entry for entry in found if _matches(entry, given)]
    rows, paging = page_of(matching, visit.number("page", 1, 1))
    return View(
        "acls.html",
        {
            "rows": [(entry, words(entry)) for entry in rows],
            "paging": paging,
            "given": given,
            "kinds": KINDS,
            "all_entries": len(found),
            "has_authorizer": has_authorizer,
        },
    )


def _all(visit: Visit) -> tuple[list[AclEntry], bool]:
    """Return all entries, and whether the cluster has an authorizer. Raises ControlError."""
    try:
        with visit.cluster() as cluster:
            return find(cluster, [AclFilter()]), True
    except ControlError as error:
        if _NO_AUTHORIZER in str(error):
            return [], False
        raise


def _matches(entry: AclEntry, given: dict[str, str]) -> bool:
    return (
        given["kind"] in ("", entry.resource_type.name)
        and given["name"].lower() in entry.name.lower()
        and given["principal"].lower() in entry.principal.lower()
    )


def add_form(visit: Visit) -> Answer:
    """Show the form for new entries."""
    return _form(visit, None)


def _form(visit: Visit, problem: str | None, status: int = 200) -> View:
    values = {
        "kinds": KINDS,
        "roles": ROLES,
        "operations": OPERATIONS,
        "given": FormEntry.of(visit),
        "chosen": set(visit.form.get("operation", ())),
        "problem": problem,
    }
    return View("acls_add.html", values, status)


def add(visit: Visit) -> Answer:
    """Add entries after a confirmation; a refusal is shown above the form."""
    try:
        return _added(visit, entries_of(visit))
    except ControlError as error:
        return _form(visit, str(error), status=400)


def _added(visit: Visit, wanted: Sequence[AclEntry]) -> Answer:
    if not visit.is_confirmed:
        entries = "this access control entry" if len(wanted) == 1 else "these access control entries"
        return Confirmation(
            title=f"Add {entries}?",
            action="Add",
            back="/access/acls/add",
            sentences=("The entries count at once, for open connections too.",),
            changes=[(str(entry), "no entry", "an entry") for entry in wanted[:MOST_SHOWN]],
        )
    with visit.cluster() as cluster:
        refusals = [reason for reason in create(cluster, wanted) if reason is not None]
    if refusals:
        raise ControlError("; ".join(dict.fromkeys(refusals)))
    number = "1 entry is" if len(wanted) == 1 else f"{len(wanted)} entries are"
    return Redirect("/access/acls", notice=f"{number} added.")


def remove(visit: Visit) -> Answer:
    """Remove one entry after a confirmation."""
    entry = _entry(visit)
    if not visit.is_confirmed:
        return Confirmation(
            title="Remove this access control entry?",
            action="Remove",
            back="/access/acls",
            sentences=("The removal counts at once, for open connections too.",),
            changes=[(str(entry), "an entry", "no entry")],
            is_danger=True,
        )
    with visit.cluster() as cluster:
        removed = delete(cluster, [filter_of(entry)])
    sentence = f"Removed: {entry}." if removed else "The entry was gone already."
    return Redirect("/access/acls", notice=sentence)


def _entry(visit: Visit) -> AclEntry:
    """Return the entry of a row's form. Raises ControlError."""
    try:
        return AclEntry(
            kind_named(visit.text("kind")),
            visit.text("name"),
            PatternType[visit.text("pattern")],
            visit.text("principal"),
            visit.text("host"),
            Operation[visit.text("operation")],
            Permission[visit.text("permission")],
        )
    except KeyError as error:
        raise ControlError(f"the form names no entry: {error}; open the list again") from None


PAGE: Final = Page(
    title="ACLs",
    path="/access/acls",
    section=Section.ACCESS,
    key="a",
    places=(
        Look("/access/acls", acls, waits_for="the list of access control entries"),
        Look("/access/acls/add", add_form),
        Change("/access/acls/add", add),
        Change("/access/acls/remove", remove),
    ),
)
