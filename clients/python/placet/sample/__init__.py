"""A small shop: `shop` is the app, `provider` the payment provider that it calls over HTTP."""
