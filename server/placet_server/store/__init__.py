"""Postgres: named queries, one typed function each, batches, migrations. Never commits on its own account."""
