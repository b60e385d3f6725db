"""Who may do what: the access control entries, and the users that log in with SCRAM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from seqgate.gateway.admin.acls import (
    Actions,
    Resource,
    WrongOptions,
    create_entries,
    delete_entries,
    filter_of,
    find_entries,
)
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.tables import shown
from seqgate.gateway.admin.users import (
    AddUserRequest,
    ListUsersRequest,
    RemoveUserRequest,
    UserRow,
    add_user,
    check_name,
    credential_for,
    find_users,
    remove_user,
)
from seqgate.gateway.console.answer import (
    Confirmation,
    PageAnswer,
    Redirect,
    View,
    address,
    page_of,
    typed_for,
)
from seqgate.gateway.console.page import Get, Page, PageGroup, Post, Visit, above_form
from seqgate.gateway.security.acls.access import (
    CLUSTER_NAME,
    SUPPORTED,
    WILDCARD,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from seqgate.gateway.security.sasl.scram_credential import MAX_ITERATIONS, MIN_ITERATIONS, ScramHash

MOST_SHOWN: Final = 50
"""Entries that a confirmation lists; it counts the others."""
_NO_AUTHORIZER: Final = "SECURITY_DISABLED"
_FIELDS: Final = ("kind", "name", "principal")


def acls(visit: Visit) -> PageAnswer:
    """Show the entries that match the filters, or how to set an authorizer up."""
    given = {field: visit.text(field).strip() for field in _FIELDS}
    found, has_authorizer = _all(visit)
    matching = [
        entry
        for entry in found
        if given["kind"] in ("", entry.resource_type.name)
        and given["name"].lower() in entry.name.lower()
        and given["principal"].lower() in entry.principal.lower()
    ]
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
            return find_entries(cluster, [AclFilter()]), True
    except ControlError as error:
        if _NO_AUTHORIZER in str(error):
            return [], False
        raise


def add_form(visit: Visit, problem: str | None = None) -> View:
    values = {
        "kinds": KINDS,
        "roles": ROLES,
        "operations": OPERATIONS,
        "given": _given(visit),
        "chosen": set(visit.form.get("operation", ())),
        "problem": problem,
    }
    return View("acls_add.html", values, 200 if problem is None else 400)


@above_form(add_form)
def add(visit: Visit) -> PageAnswer:
    """Add entries after a confirmation."""
    wanted = entries_of(visit)
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
        refusals = [reason for reason in create_entries(cluster, wanted) if reason is not None]
    if refusals:
        raise ControlError("; ".join(dict.fromkeys(refusals)))
    number = "1 entry is" if len(wanted) == 1 else f"{len(wanted)} entries are"
    return Redirect("/access/acls", notice=f"{number} added.")


def remove(visit: Visit) -> PageAnswer:
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
        removed = delete_entries(cluster, [filter_of(entry)])
    sentence = f"Removed: {entry}." if removed else "The entry was gone already."
    return Redirect("/access/acls", notice=sentence)


def _entry(visit: Visit) -> AclEntry:
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


# The entries that the form of new access control entries stands for.

PRODUCE: Final = "produce"
CONSUME: Final = "consume"
SINGLE: Final = "single"
ROLES: Final = (
    (PRODUCE, "produce to a topic"),
    (CONSUME, "consume a topic with a group"),
    (SINGLE, "single operations"),
)
_SEPARATE: Final = (ResourceType.UNKNOWN, ResourceType.ANY)
KINDS: Final = tuple(kind.name for kind in ResourceType if kind not in _SEPARATE)
OPERATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    kind.name: tuple(operation.name for operation in (Operation.ALL, *operations))
    for kind, operations in SUPPORTED.items()
}
"""The names of the operations on each kind of resource."""


_FORM: Final[Mapping[str, str]] = {
    **dict.fromkeys(("principal", "host", "topic", "group", "transactional_id", "name"), ""),
    "permission": Permission.ALLOW.name,
    "role": PRODUCE,
    "pattern": PatternType.LITERAL.name,
    "kind": ResourceType.TOPIC.name,
}

Form = Mapping[str, str]


def _given(visit: Visit) -> Form:
    given = {name: visit.text(name, default) for name, default in _FORM.items()}
    given |= {name: given[name].strip() for name in ("principal", "host", "topic")}
    return {**given, "host": given["host"] or WILDCARD}


def kind_named(name: str) -> ResourceType:
    """Return the kind of resource of this name. Raises ControlError."""
    if name not in KINDS:
        raise ControlError(f"there is no kind of resource {name[:40]!r}; choose from {', '.join(KINDS)}")
    return ResourceType[name]


def entries_of(visit: Visit) -> list[AclEntry]:
    """Return the entries of the form. Raises ControlError with a sentence about the field that is wrong."""
    form = _given(visit)
    if ":" not in form["principal"]:
        raise ControlError(
            f"the principal must have the form User:NAME, not {form['principal'][:80]!r}; User:* is everybody"
        )
    if form["permission"] not in (Permission.ALLOW.name, Permission.DENY.name):
        raise ControlError(f"the permission must be ALLOW or DENY, not {form['permission'][:40]!r}")
    if form["pattern"] not in (PatternType.LITERAL.name, PatternType.PREFIXED.name):
        raise ControlError(f"the pattern must be LITERAL or PREFIXED, not {form['pattern'][:40]!r}")
    try:
        pairs = _rights(form, visit)
    except WrongOptions as error:
        raise ControlError(str(error)) from None
    return [
        AclEntry(
            kind,
            name,
            PatternType.LITERAL if kind is ResourceType.CLUSTER else PatternType[form["pattern"]],
            form["principal"],
            form["host"],
            operation,
            Permission[form["permission"]],
        )
        for (kind, name), operation in pairs
    ]


def _rights(form: Form, visit: Visit) -> list[tuple[Resource, Operation]]:
    """Return the operations on each resource. Raises ControlError and WrongOptions."""
    if form["role"] == SINGLE:
        return _single(form, visit)
    if form["role"] not in (PRODUCE, CONSUME):
        raise ControlError(f"there are no rights {form['role'][:40]!r}; choose from the form's")
    resources: list[Resource] = [(ResourceType.TOPIC, _needed(form["topic"], "topic"))]
    if form["role"] == CONSUME:
        resources.append((ResourceType.GROUP, _needed(form["group"], "group")))
        return Actions(consumer=True).on(resources)
    if form["transactional_id"]:
        resources.append((ResourceType.TRANSACTIONAL_ID, form["transactional_id"]))
    return Actions(producer=True).on(resources)


def _single(form: Form, visit: Visit) -> list[tuple[Resource, Operation]]:
    kind = kind_named(form["kind"])
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else _needed(form["name"], "name of the resource")
    chosen = [each for each in OPERATIONS[kind.name] if each in visit.form.get("operation", ())]
    if not chosen:
        raise ControlError("no operation is chosen; choose at least one")
    return [((kind, name), Operation[each]) for each in chosen]


def _needed(text: str, what: str) -> str:
    if not text:
        raise ControlError(f"the {what} is empty; give a name, or * for all")
    return text


def words(entry: AclEntry) -> str:
    """Return the resource of an entry in words: `topic orders*` where the name is a prefix."""
    star = WILDCARD if entry.pattern_type is PatternType.PREFIXED else ""
    return f"{entry.resource_type.name.lower().replace('_', ' ')} {entry.name}{star}"


# The users that log in with SCRAM: list, new password, removal.

_MECHANISMS: Final = {hashing.mechanism: hashing for hashing in ScramHash}
MOST_HASHES: Final = 1_000_000
"""Iterations that the console lets a person ask for; hashing takes about a second."""


def users(visit: Visit) -> PageAnswer:
    wanted = visit.text("filter").strip()
    matching = [row for row in _all_users(visit) if wanted.lower() in row.user.lower()]
    rows, paging = page_of(matching, visit.number("page", 1, 1))
    return View("users.html", {"rows": rows, "paging": paging, "wanted": wanted, "query": {"filter": wanted}})


def _all_users(visit: Visit) -> list[UserRow]:
    with visit.cluster() as cluster:
        return find_users(cluster, ListUsersRequest()).users


def password_form(visit: Visit, problem: str | None = None) -> View:
    """Show the form for the password of a new user, or the new one of a known user."""
    user = _user(visit)
    known = next((row for row in _all_users(visit) if row.user == user), None)
    chosen = set(visit.form.get("mechanism", ())) or {
        credential.mechanism for credential in (known.credentials if known else ())
    }
    return View(
        "user_password.html",
        {
            "name": user,
            "known": known,
            "mechanisms": tuple(_MECHANISMS),
            "chosen": chosen or set(_MECHANISMS),
            "iterations": visit.text("iterations") or MIN_ITERATIONS,
            "lowest": MIN_ITERATIONS,
            "highest": min(MAX_ITERATIONS, MOST_HASHES),
            "problem": problem,
        },
        200 if problem is None else 400,
    )


def _user(visit: Visit) -> str:
    user = visit.text("user")
    if not user.strip():
        raise ControlError("the name of the user is empty; give a name")
    return user


@above_form(password_form, "Nothing is changed: ")
def set_password(visit: Visit) -> PageAnswer:
    """Set a user's password; the form said what it replaces, and shows a refusal without the password."""
    user = _user(visit)
    if not visit.is_confirmed:
        return password_form(visit)
    check_name(user)
    password = visit.text("password")
    if not password:
        raise ControlError("the password is empty; type one, or make one")
    mechanisms = [name for name in _MECHANISMS if name in visit.form.get("mechanism", ())]
    if not mechanisms:
        raise ControlError("no mechanism is chosen; choose at least one")
    iterations = visit.number("iterations", MIN_ITERATIONS, MIN_ITERATIONS, min(MAX_ITERATIONS, MOST_HASHES))
    credentials = [credential_for(_MECHANISMS[name], password, iterations) for name in mechanisms]
    with visit.cluster() as cluster:
        done = add_user(cluster, AddUserRequest(user, credentials))
    return Redirect(
        address("/access/users", filter=user),
        notice=f"User {shown(user)} can log in with {' and '.join(done.mechanisms)}.",
    )


def remove_login(visit: Visit) -> PageAnswer:
    """Remove a user, or one of the user's mechanisms, after a confirmation."""
    user, mechanism = _user(visit), visit.text("mechanism")
    typed = typed_for(user)
    if visit.is_confirmed and visit.text("typed") == typed:
        with visit.cluster() as cluster:
            done = remove_user(cluster, RemoveUserRequest(user, [mechanism] if mechanism else []))
        return Redirect(
            "/access/users",
            notice=f"User {shown(user)} can't log in with {' and '.join(done.mechanisms)} any more.",
        )
    sentences = [
        (
            f"User {shown(user)} can't log in {f'with {mechanism}' if mechanism else 'with any mechanism'} "
            "any more."
        ),
        (
            "Open connections stay until they close or must log in again (connections.max.reauth.ms). ACLs "
            "and quotas stay."
        ),
    ]
    if user == visit.user:
        sentences.insert(0, "You are logged in as this user.")
    return Confirmation(
        title=f"Remove {f'{mechanism} of ' if mechanism else ''}user {shown(user)}?",
        action="Remove the user" if not mechanism else "Remove the mechanism",
        back="/access/users",
        sentences=sentences,
        typed=typed,
        is_danger=True,
    )


USERS_PAGE: Final = Page(
    "Users",
    PageGroup.ACCESS,
    "u",
    Get("/access/users", users, waits_for="the list of users"),
    Get("/access/users/password", password_form, waits_for="the list of users"),
    Post("/access/users/password", set_password),
    Post("/access/users/remove", remove_login),
)


ACLS_PAGE: Final = Page(
    "ACLs",
    PageGroup.ACCESS,
    "a",
    Get("/access/acls", acls, waits_for="the list of access control entries"),
    Get("/access/acls/add", add_form),
    Post("/access/acls/add", add),
    Post("/access/acls/remove", remove),
)
