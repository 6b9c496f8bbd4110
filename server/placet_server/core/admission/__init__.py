"""From a request to a row, or to a refusal that changes nothing.

execute      the use cases: run to the end, with or without events
pipeline     the gates in their order
capability, input, contract, credential   one gate each
key          which key, and what a known key means
reserve      the row that is intent, reservation and lease at once
attend       waiting for an action, and taking it over when it is ready again
catalog, manifest   what can be invoked
"""
