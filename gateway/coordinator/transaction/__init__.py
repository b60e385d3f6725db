"""The transaction coordinator: pure rules that compute the outcome of a request, and the records that store
it. Source: Kafka's `TransactionCoordinator`, `TransactionMetadata`, KIP-98, KIP-360, KIP-890.
"""
