"""The users that log in with SCRAM: list, new password, removal."""

from __future__ import annotations

from typing import Final

from gateway.admin.printing import shown
from gateway.admin.request import ControlError
from gateway.admin.users.command import credential_for
from gateway.admin.users.messages import AddUserRequest, ListUsersRequest, RemoveUserRequest, UserRow
from gateway.admin.users.remote import add_user, list_users, remove_user
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
from gateway.console.pages.links import link
from gateway.console.pages.typed_names import typed_for
from gateway.security.sasl.scram_credential import MAX_ITERATIONS, MIN_ITERATIONS, ScramHash

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
    """Set the password of a user. The form said what it replaces; a refusal is shown there, without the password."""
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


def remove(visit: Visit) -> Answer:
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
        f"User {shown(user)} can't log in {f'with {mechanism}' if mechanism else 'with any mechanism'} any more.",
        "Open connections stay until they close or must log in again (connections.max.reauth.ms). ACLs and quotas stay.",
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


PAGE: Final = Page(
    title="Users",
    path="/access/users",
    section=Section.ACCESS,
    key="u",
    places=(
        Look("/access/users", users, waits_for="the list of users"),
        Look("/access/users/password", password_form, waits_for="the list of users"),
        Change("/access/users/password", set_password),
        Change("/access/users/remove", remove),
    ),
)
