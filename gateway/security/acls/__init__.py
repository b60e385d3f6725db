"""Access control lists: who may do what with which resource."""
