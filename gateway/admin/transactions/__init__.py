"""Transactional ids, their transactions, and the transactions that hang."""
