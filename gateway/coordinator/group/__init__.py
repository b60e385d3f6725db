"""Classic, consumer and share groups: members, rebalances and committed offsets.

An operation takes the time as an argument and returns what follows from it: records to append to
`__consumer_offsets` and answers to requests that waited. Source: Kafka's `group-coordinator` module.
"""
