"""Postgres: named queries, one typed function each, batches, migrations.

A function leaves the tx to its caller. Only the batch writer's flush, each migration and the probe of health
are a tx of their own.
"""
