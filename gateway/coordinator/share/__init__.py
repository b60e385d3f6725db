"""Share groups (KIP-932): records acquired by one member at a time, and acknowledged one by one.

Their members are in `gateway.coordinator.group`.

Source: Kafka's `SharePartition`, `ShareCoordinatorShard`.
"""
