"""Coordinators of groups, share groups and transactions over their logs."""
