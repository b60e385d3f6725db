"""Classic, consumer and share groups: members, rebalances and committed offsets.

An operation takes the time as an argument. It returns the records to append to `__consumer_offsets` and the
answers to waiting requests. Source: Kafka's `group-coordinator` module.
"""
