"""From a request to a row, or to a refusal that changes nothing.

execute      the use cases: run to the end, with or without events
pipeline     the gates in their order
message, catalog, input, contract, credential, policy, key, session_gate, quota
           one gate each; key also says what a known key means
session    sessions begun and closed; runs that take their turns in them; session_token: handing one on
ask          the use case that asks an agent
submit       the use case that stores an action and leaves it to a server
submit_batch many submissions at once, each with its own answer
child        the use case that a handler starts: an action that is a step of another one
dispatch     taking work from the queues: never more than can run at once; slot: of what is limited over all servers
elsewhere    what other servers take from them; queue_counts: what this one has begun and ended
stale_place  a place in line that says something else than its action
ready_lines  which lines have work, as far as this process knows
dispatch_slot what runs here that was taken from a queue, and what only waits for a child
take         starting what was claimed from a queue
begin        what is looked at again before a claimed action's handler is entered
answer       what a call that runs an action is told at its end
begin_here   what is COMPOSED and called, which runs here from the start and has a place in line to go back to
reserve      the row that is intent, reservation and lease at once
attend       waiting for an action, and taking it over when it is ready again
leave        when who waits for what is COMPOSED goes away
resume       the use case that goes on with an action by its id
catalog      what can be invoked; builtin: what every server offers by itself
manifest, manifest_weakening   what is wrong with a manifest, and what it takes back; manifest_agent: with its agents;
             manifest_admit: storing it
policy_set   policies as they come and go; policy_check, policy_lock_out: what is wrong with them
policy_dry_run  trying them on what is recorded
"""
