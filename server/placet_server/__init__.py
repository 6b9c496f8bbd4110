"""The service: imports run rpc | loops → harness → core → store → model; app.py puts them together."""
