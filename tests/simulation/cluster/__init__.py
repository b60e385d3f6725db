"""Runs of several gateways that are one cluster: their plans, faults and lives."""
