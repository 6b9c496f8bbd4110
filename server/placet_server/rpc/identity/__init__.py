"""Who asks: established from transport and token, never from the payload.

`layer` tries the sources that are configured; `dev_token`, `jwt` and `mtls` are the sources; `claim` reads a JWT's
claims; `jwks` keeps the issuer's keys.
"""
