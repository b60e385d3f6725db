"""Asks the cluster over the Kafka protocol, as the person who is logged in."""
