"""Dry runs, plans and approvals: whether the intent may start."""
