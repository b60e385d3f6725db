"""The backlog of groups: how much of a topic they have not read."""
