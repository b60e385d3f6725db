"""The transaction coordinator: pure rules that say what follows a request, and the records that make it last.

Source: Kafka's `TransactionCoordinator`, `TransactionMetadata`, KIP-98, KIP-360, KIP-890.
"""
