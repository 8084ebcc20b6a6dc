"""Sparse linear models of a federation under a limit on their non-zeros."""
