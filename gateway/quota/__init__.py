"""Backlog quotas and message TTL: pure decisions about producers and readers from measured facts.

Source: Apache Pulsar's backlog quotas and message TTL: its `BacklogQuotaManager`, PR 10093 (quotas by time),
PIP-248 (the definition of a topic's backlog).
"""
