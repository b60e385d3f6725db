"""The users that log in with SCRAM: list, new password, removal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from seqgate.gateway.admin.quotas.command import QuotaRow
from seqgate.gateway.admin.quotas.remote import change, find
from seqgate.gateway.admin.remote.cluster import Cluster
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.tables import shown
from seqgate.gateway.admin.users.command import credential_for
from seqgate.gateway.admin.users.messages import AddUserRequest, ListUsersRequest, RemoveUserRequest, UserRow
from seqgate.gateway.admin.users.remote import add_user, list_users, remove_user
from seqgate.gateway.console.page import (
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
from seqgate.gateway.console.pages.links import link, typed_for
from seqgate.gateway.security.sasl.scram_credential import MAX_ITERATIONS, MIN_ITERATIONS, ScramHash

_MECHANISMS: Final = {hashing.mechanism: hashing for hashing in ScramHash}
MOST_HASHES: Final = 1_000_000
"""Iterations that the console lets a person ask for; hashing takes about a second."""


def users(visit: Visit) -> Answer:
    """Show the users whose names contain the filter."""
    wanted = visit.text("filter").strip()
    found = _all(visit)
    matching = [row for row in found if wanted.lower() in row.user.lower()]
    rows, paging = page_of(matching, visit.number("page", 1, 1))
    return View(
        "users.html",
        {
            "rows": rows,
            "paging": paging,
            "wanted": wanted,
            "all_users": len(found),
            "query": {"filter": wanted},
        },
    )


def _all(visit: Visit) -> list[UserRow]:
    with visit.cluster() as cluster:
        return list_users(cluster, ListUsersRequest()).users


def password_form(visit: Visit) -> Answer:
    """Show the form for the password of a new user, or the new one of a known user."""
    return _form(visit, None)


def _form(visit: Visit, problem: str | None, status: int = 200) -> View:
    user = _user(visit)
    known = next((row for row in _all(visit) if row.user == user), None)
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
        status,
    )


def _user(visit: Visit) -> str:
    user = visit.text("user")
    if not user.strip():
        raise ControlError("the name of the user is empty; give a name")
    return user


def set_password(visit: Visit) -> Answer:
    """Set the password of a user. The form said what it replaces; a refusal is shown there, without the
    password.
    """
    user = _user(visit)
    try:
        if not visit.is_confirmed:
            return _form(visit, None)
        mechanisms = _set(visit, user)
    except ControlError as error:
        return _form(visit, f"Nothing is changed: {error}", status=400)
    return Redirect(
        link("/access/users", filter=user),
        notice=f"User {shown(user)} can log in with {' and '.join(mechanisms)}.",
    )


def _set(visit: Visit, user: str) -> list[str]:
    password = visit.text("password")
    if not password:
        raise ControlError("the password is empty; type one, or make one")
    mechanisms = [name for name in _MECHANISMS if name in visit.form.get("mechanism", ())]
    if not mechanisms:
        raise ControlError("no mechanism is chosen; choose at least one")
    iterations = visit.number("iterations", MIN_ITERATIONS, MIN_ITERATIONS, min(MAX_ITERATIONS, MOST_HASHES))
    credentials = [credential_for(_MECHANISMS[name], password, iterations) for name in mechanisms]
    with visit.cluster() as cluster:
        return add_user(cluster, AddUserRequest(user, credentials)).mechanisms


def remove_access_users(visit: Visit) -> Answer:
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
            f"User {shown(user)} can't log in {f'with {mechanism}' if mechanism else 'with any mechanism'} any "
            "more."
        ),
        (
            "Open connections stay until they close or must log in again (connections.max.reauth.ms). ACLs and "
            "quotas stay."
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


# The client quotas: list, change, removal.

Entity = dict[str, str | None]

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
_WORDS: Final = {USER: "user", CLIENT_ID: "client id", IP: "address"}
ANY: Final = "default"
"""The choice of a form that stands for all users, client ids or addresses without quotas of their own."""
NAMED: Final = "named"
QUOTAS: Final[Mapping[str, str]] = {
    "producer_byte_rate": "bytes that may be produced per second",
    "consumer_byte_rate": "bytes that may be consumed per second",
    "request_percentage": "percent of one thread's time for requests",
    "controller_mutation_rate": "partitions that may be created or deleted per second",
    "connection_creation_rate": "connections that may be opened per second",
}
"""The quotas, with what each limits. The last one is of addresses, the others are of users and client ids."""
_OF_ADDRESSES: Final = "connection_creation_rate"


def quotas(visit: Visit) -> Answer:
    """Show the entities with quotas whose names contain the filter."""
    wanted = visit.text("filter").strip()
    with visit.cluster() as cluster:
        found = find(cluster, {})
    named = [(row, entity_words(row.entity)) for row in found]
    matching = [pair for pair in named if wanted.lower() in pair[1].lower()]
    rows, paging = page_of(matching, visit.number("page", 1, 1))
    return View(
        "quotas.html",
        {
            "rows": [(row, text, _form_address(row.entity)) for row, text in rows],
            "paging": paging,
            "wanted": wanted,
            "all_entities": len(found),
            "value": value_text,
        },
    )


def entity_words(entity: Mapping[str, str | None]) -> str:
    """Return an entity in words: `user ann, every client id`."""
    return ", ".join(
        f"every other {_WORDS.get(kind, kind)}" if name is None else f"{_WORDS.get(kind, kind)} {shown(name)}"
        for kind, name in entity.items()
    )


def _form_address(entity: Mapping[str, str | None]) -> str:
    """Return the address of the form about an entity."""
    query: dict[str, str] = {}
    for kind, name in entity.items():
        query[f"{kind}-is"] = ANY if name is None else NAMED
        query[kind] = name or ""
    return link("/access/quotas/edit", **query)


def value_text(value: float) -> str:
    """Return a value without needless digits."""
    return f"{value:.15g}"


def edit_form(visit: Visit) -> Answer:
    """Show the form with the present quotas of an entity, or an empty one."""
    return _form_quotas(visit, None)


def _form_quotas(visit: Visit, problem: str | None, status: int = 200) -> View:
    now: Mapping[str, float] = {}
    try:
        entity = _entity(visit)
        with visit.cluster() as cluster:
            now = _now(cluster, entity)
    except ControlError as error:
        entity = {}
        problem = problem or (str(error) if visit.form else None)
    values = {
        "kinds": [(kind, _WORDS[kind]) for kind in (USER, CLIENT_ID, IP)],
        "given": {kind: visit.text(kind) for kind in _WORDS},
        "choices": {kind: visit.text(f"{kind}-is", NAMED if visit.text(kind) else "") for kind in _WORDS},
        "entity": entity_words(entity),
        "quotas": QUOTAS,
        "of_addresses": _OF_ADDRESSES,
        "values": {
            quota: visit.text(quota) or (value_text(now[quota]) if quota in now else "") for quota in QUOTAS
        },
        "now": now,
        "problem": problem,
    }
    return View("quota_edit.html", values, status)


def _entity(visit: Visit) -> Entity:
    """Return the entity of the form. Raises ControlError."""
    entity: Entity = {}
    for kind, word in _WORDS.items():
        choice, name = visit.text(f"{kind}-is"), visit.text(kind)
        if choice == ANY:
            entity[kind] = None
        elif choice == NAMED:
            if not name:
                raise ControlError(f"the name of the {word} is empty; give a name")
            entity[kind] = name
    if not entity:
        raise ControlError("nothing is chosen that gets quotas; choose a user, a client id or an address")
    if IP in entity and len(entity) > 1:
        raise ControlError("an address has quotas of its own; choose no user or client id with it")
    return entity


def _now(cluster: Cluster, entity: Entity) -> Mapping[str, float]:
    rows: list[QuotaRow] = find(cluster, entity)
    return next((row.quotas for row in rows if row.entity == entity), {})


def edit(visit: Visit) -> Answer:
    """Set and remove quotas of an entity after a confirmation; a refusal is shown above the form."""
    try:
        entity = _entity(visit)
        with visit.cluster() as cluster:
            return _changed(visit, cluster, entity)
    except ControlError as error:
        return _form_quotas(visit, str(error), status=400)


def _changed(visit: Visit, cluster: Cluster, entity: Entity) -> Answer:
    wanted = _wanted(visit, is_address=IP in entity)
    now = _now(cluster, entity)
    new = {quota: value for quota, value in wanted.items() if now.get(quota) != value}
    gone = [quota for quota in now if quota in QUOTAS and quota not in wanted]
    if not new and not gone:
        raise ControlError("the form changes nothing; give another value, or cancel")
    if not visit.is_confirmed:
        return _question(entity, now, new, gone)
    _change(cluster, entity, new, gone)
    return Redirect("/access/quotas", notice=f"The quotas of {entity_words(entity)} are changed.")


def _change(cluster: Cluster, entity: Entity, new: Mapping[str, float], gone: Sequence[str]) -> None:
    refused = change(cluster, entity, new, gone)
    if refused is not None:
        raise ControlError(refused)


def _question(
    entity: Entity, now: Mapping[str, float], new: Mapping[str, float], gone: Sequence[str]
) -> Answer:
    changes = [
        (quota, value_text(now[quota]) if quota in now else "no limit", value_text(value))
        for quota, value in new.items()
    ]
    return Confirmation(
        title=f"Change the quotas of {entity_words(entity)}?",
        action="Change the quotas",
        back=_form_address(entity),
        sentences=("A client over its quota waits longer for each answer; nothing is refused or lost.",),
        changes=[*changes, *((quota, value_text(now[quota]), "no limit") for quota in gone)],
    )


def _wanted(visit: Visit, *, is_address: bool) -> dict[str, float]:
    """Return the quotas of the form that are not empty. Raises ControlError."""
    wanted: dict[str, float] = {}
    for quota in QUOTAS:
        text = visit.text(quota).strip()
        if not text:
            continue
        if (quota == _OF_ADDRESSES) is not is_address:
            owner = "an address" if quota == _OF_ADDRESSES else "users and client ids"
            raise ControlError(f"{quota} is a quota of {owner}; leave it empty here")
        try:
            wanted[quota] = float(text)
        except ValueError:
            raise ControlError(f"{quota} must be a number, not {text[:40]!r}") from None
    return wanted


def remove_access_quotas(visit: Visit) -> Answer:
    """Remove all quotas of an entity after a confirmation."""
    entity = _entity(visit)
    with visit.cluster() as cluster:
        now = _now(cluster, entity)
        if not visit.is_confirmed:
            return Confirmation(
                title=f"Remove the quotas of {entity_words(entity)}?",
                action="Remove the quotas",
                back="/access/quotas",
                changes=[(quota, value_text(value), "no limit") for quota, value in now.items()],
                is_danger=True,
            )
        if now:
            _change(cluster, entity, {}, list(now))
    return Redirect("/access/quotas", notice=f"The quotas of {entity_words(entity)} are removed.")


ACCESS_QUOTAS_PAGE: Final = Page(
    title="Quotas",
    path="/access/quotas",
    section=Section.ACCESS,
    key="q",
    places=(
        Look("/access/quotas", quotas, waits_for="the list of quotas"),
        Look("/access/quotas/edit", edit_form, waits_for="the present quotas"),
        Change("/access/quotas/edit", edit),
        Change("/access/quotas/remove", remove_access_quotas),
    ),
)


ACCESS_USERS_PAGE: Final = Page(
    title="Users",
    path="/access/users",
    section=Section.ACCESS,
    key="u",
    places=(
        Look("/access/users", users, waits_for="the list of users"),
        Look("/access/users/password", password_form, waits_for="the list of users"),
        Change("/access/users/password", set_password),
        Change("/access/users/remove", remove_access_users),
    ),
)
