"""Serves an app's tools to Placet from a process of its own: `App.serve`, `placet connect`.

`server` listens and drains, `service` speaks the contract, `token` and `signing_key` say whom it believes. `attempt`
runs a handler and outlives the stream that asked for it, `attempt_table` remembers how each ended, `outlet` is one
stream's side of it, `frame` what is said on it, `finding` what an attempt came to when Placet asks later.
"""
