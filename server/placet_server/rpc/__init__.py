"""The gRPC surface.

`interceptor` shows the order in which a call passes the layers; `method` names every RPC; `runtime` and `catalog`
answer them; `convert/` turns messages into model values and back; `status` turns a PlacetError into a status;
`identity/` says who asks; `limit` sheds load; `announcement` names a slow action early; `server` and `health` are the
ports.
"""
