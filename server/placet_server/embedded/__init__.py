"""Postgres as a child process: no installation, no port, gone with its owner.

- ``server``: start, stop, connection string of one embedded Postgres
- ``folder``: the data folder: its lock, its password, its major version, its leftovers
- ``supervision``: the child process that cannot outlive its owner
- ``binaries``: where the Postgres programs come from
- ``descriptor``: a lock or pipe end that no child inherits
- ``process_table``: which processes run on a data folder
- ``account``: the unprivileged user that runs them
- ``error``: why Postgres was not started
"""
