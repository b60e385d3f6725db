"""Code that several packages of handlers share: the type of an API, limits on time and size, checks of
rights, and rows of answers.
"""
