"""Delivery state of share groups (KIP-932): one member acquires a record at a time, and acknowledges it by
itself.

`seqgate.gateway.coordinator.group` has the members of share groups. Source: Kafka's `SharePartition`,
`ShareCoordinatorShard`.
"""
