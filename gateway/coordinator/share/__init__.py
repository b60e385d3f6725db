"""Share groups (KIP-932): records acquired by one member at a time, and acknowledged one by one.

Source: Kafka's `SharePartition`, `ShareCoordinatorShard`.
"""
