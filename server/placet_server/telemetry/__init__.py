"""What the server says of itself.

`metric` counts in plain ints, `observer` what the core tells; `exposition` serves the counts to Prometheus,
`otlp` sends them and the traces away; `tracing` reads trace headers and decides what is sampled; `logs` writes
lines; `environment` reads the OTEL_* variables.
"""
