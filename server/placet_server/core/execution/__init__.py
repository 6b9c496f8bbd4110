"""Doing the work, once, under a lease.

engine      what execution needs, in one place
handlers    which handler serves which capability
connectors  handlers in other processes, as the core sees them
runs        what runs in this process, and who still waits for it
run         one attempt: invoke, judge, settle
invoke      entering the handler: inline, or in a thread that cannot be stopped
fairness    whose work is taken from the queues next: pure
threads     slots for plain handlers
timers      deadlines by the thousand
attempt     what the context of a handler stands on
finding     what became of an effect that may have happened
lookup      asking a handler's lookup for it
lookups     which of them are under way
child       how a handler calls another capability, and what it lends while it waits
judgement   how an attempt ended, and what that means: pure
cancel      somebody asks to stop
pause       queues that begin nothing for a while
watched     a watcher who keeps a run wanted
"""
