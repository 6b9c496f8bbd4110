"""Doing the work, once, under a lease.

engine      what execution needs, in one place
handlers    which handler serves which capability
connectors  handlers in other processes, as the core sees them
program     what runs agents, as the core sees it; stretch: what it has of its attempt
runs        what runs in this process, and who still waits for it
begin       what is looked at again before a stored action begins
run         one attempt: invoke, judge, settle
invoke      entering the handler: inline, or in a thread that cannot be stopped
fairness    whose work is taken from the queues next: pure
threads     slots for plain handlers
slot        what a contract allows at once and in a second, over all servers
timers      deadlines by the thousand
attempt     what the context of a handler stands on
finding     what became of an effect that may have happened
lookup      asking a handler's lookup for it
lookups     which of them are under way
child       how a handler calls another capability, and what it lends while it waits
ending      how an attempt ended; judgement: what that means; both pure
steps       what a COMPOSED attempt waits for; quiet: whether that takes long enough to be parked
cancel      somebody asks to stop; cancel_many: all that match
pause       queues that begin nothing for a while
servers     who is at work on the store
watched     a watcher who keeps a run wanted
"""
