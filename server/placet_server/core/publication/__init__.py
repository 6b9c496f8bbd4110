"""Making results durable and telling of them.

journal   the store as the core sees it: writer, pool, clock, wake-ups
settle    a verdict becomes the row's state and its event, under the lease
outcome   what a row means to its caller
lane      chunks and progress, in the handler's order
watch     an action's events from a cursor: history, then live
read      get, list, wait
"""
