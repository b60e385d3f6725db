"""What may be unread, and for how long: backlog quotas and message TTL, decided from facts.

Source: Apache Pulsar's backlog quotas and message TTL: its `BacklogQuotaManager`, PR 10093 (quotas by time), PIP-248 (what
the backlog of a topic is).
"""
