"""Transactional ids, their transactions, and hanging transactions."""
