"""`seqgate groups`: the commands for consumer groups, share groups and streams groups."""

from __future__ import annotations

from seqgate.gateway.admin.commands import Commands
from seqgate.gateway.admin.groups.deletion import delete
from seqgate.gateway.admin.groups.describing import describe
from seqgate.gateway.admin.groups.listing import list_groups
from seqgate.gateway.admin.groups.reset import reset

app = Commands("""Look at and administer consumer groups, share groups and streams groups.

The consumers of a group share the partitions of their topics among themselves, \
and commit how far they have read: per
partition the offset of the next record. A group without members keeps its offsets \
until its consumers come back or
offsets.retention.minutes are over.

The consumers of a share group read the same partitions together and acknowledge record by record (KIP-932).

The instances of a Kafka Streams application with group.protocol=streams are a streams group: \
they share tasks, each of which
reads one partition of the topics of its subtopology (KIP-1071).

The commands ask the gateway that runs on --data-dir, or the cluster at --bootstrap.
""")
app.command("list")(list_groups)
app.command("describe")(describe)
app.command("reset")(reset)
app.command("delete")(delete)
