"""Making results durable and telling of them.

journal   the store as the core sees it: writer, pool, clock, wake-ups
for_sure  asking it until it answers
hub       wake-ups within this process
boundary  where tests kill the process
lease     fresh ids
doorbell  the wake-up of whoever takes work from queues
relay     what other processes are told; notice: how it is written
line      an action's place in line
promote   delayed actions whose time has come; alarm: when that is next
family    what a COMPOSED action's end says of its effect
wake      parents that wait for their steps are ready again
entries   what a run of an agent remembers; turn: the same for people
session   sessions as they stand, and whose turn it is; session_history: what their runs remember
settle    a verdict becomes the row's state and its event, under the lease
close     the same for a ready or waiting row, which has no lease; write_close: its one statement
gated     moving on what waits for people: the action and its approval, locked
waits     what an action waits for, read beside it
outcome   what a row means to its caller
lane      chunks and progress, in the handler's order; lane_writer: of all attempts together
cursor    where a watcher stands
share     what many read at the same moment, read once
watch     an action's events from a cursor: history, then live
feed      the events of a tenant; feed_cursor: where a reader of it stands; feed_tail: its newest rows
descendants an action and all that it has called, as a feed
read      get, list, wait
callback  what others are told; approval_callback: of approvals; deliver: sending it
"""
