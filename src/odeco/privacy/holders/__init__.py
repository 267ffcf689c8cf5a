"""Data holders: the only code that touches private records, each query with its proved
sensitivity.
"""
