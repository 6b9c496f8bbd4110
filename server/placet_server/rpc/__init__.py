"""The gRPC surface.

`interceptor` shows the order in which a call passes the layers, `call` what a call is. The layers, each a step or two:
`observation` (with `tracing`) counts and traces; `error_mapping` makes a status of an exception, by `status`;
`limit` sheds load; `identity/` says who asks; `permission` asks for a scope; `validation` parses and checks,
`plain_request` the plainest. `method` names every RPC; one file a service answers them, `runtime` (and `ask`),
`approval`, `catalog`, `policy`, `operations`, `recovery`, with `governed` for what is an action of its own; `message`
reads which message a call is; `convert/` turns messages into model values and back, `page` makes page tokens, `text`
cuts; `announcement` names a slow action early. `server`, `transport` and `health` are the ports.
"""
