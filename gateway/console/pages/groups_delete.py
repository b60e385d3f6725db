"""Deletes a group with its offsets."""

from __future__ import annotations

from gateway.admin.groups.messages import DeleteGroupsRequest
from gateway.admin.groups.remote import delete_groups
from gateway.admin.printing import shown
from gateway.admin.request import ControlError
from gateway.console.asking.groups import group_lists
from gateway.console.page import Answer, Confirmation, Redirect, Visit
from gateway.console.pages.groups_view import group_of
from gateway.console.pages.links import link
from gateway.console.pages.typed_names import typed_for


def delete(visit: Visit) -> Answer:
    """Delete a group after the person has typed its name. Raises ControlError for a group with members."""
    group = group_of(visit)
    typed = typed_for(group)
    is_confirmed = visit.is_confirmed and visit.text("typed") == typed
    with visit.cluster() as cluster:
        (outcome,) = delete_groups(cluster, DeleteGroupsRequest([group], execute=is_confirmed)).groups
    if outcome.refusal is not None:
        raise ControlError(outcome.refusal)
    if is_confirmed:
        group_lists.forget()
        return Redirect("/groups", notice=f"Group {shown(group)} is deleted.")
    return Confirmation(
        title=f"Delete group {shown(group)}?",
        action="Delete the group",
        back=link("/groups/view", group=group),
        sentences=(
            f"The group's committed offsets in {_partitions(outcome.committed_partitions)} are deleted with it.",
            "A consumer that joins a group of this name afterwards begins where its auto.offset.reset says.",
        ),
        typed=typed,
        is_danger=True,
    )


def _partitions(number: int) -> str:
    return "1 partition" if number == 1 else f"{number:,} partitions"
