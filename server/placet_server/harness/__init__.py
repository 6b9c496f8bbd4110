"""How an agent runs: what its run remembers, what a model is asked, and what becomes of the answer. Pure, but for the
first nine, what tells of them (observer, tracing, span_context), and `provider/`, which alone talks to models.

agent           which agents can run here, and what runs them
program         the loop: ask, call, tell, until there is an answer
opening         what holds for all of a run, pinned when it opens
turn            one request, and the entry that comes of it
ending          how a run ends, or is put off, otherwise than by its answer
live            its calls, and what is told of a run while it runs
tools           which capabilities a run may call, pinned when it opens
lack            what the runs of an agent would lack if one began now
history         what was said in its session before a run, and what of it is still to be told
transcript      what the entries of a run amount to: its messages, what it has spent, what is to be done next
replay          what each entry adds to that, whether it is written or read again
request         what the model is asked for next, and what that is charged before
plan            what each call of an answer becomes, before any of them is made
spoken          what entries say to people
delegate        other agents as tools: what they are asked, and what they have spent
compaction      what of a long run is summed up, and what stands for it then
clip            messages of which only the ends are told, to be summed up
result          what the model is told of how a call ended
budget          charging before anything is spent
instruction     instructions with the arguments of a run in them
surroundings    what all runs of a server have
alias           what a model calls a capability by
local_model     a model without a model: plans over the sample shop by the words of the message
observer        who is told of what models are asked, for metrics and spans
tracing         spans of runs, turns and calls
span_attributes what stands in them
span_context    where they belong, over the stretches of a run
provider/       asking a model: names, credentials, wires, failures
"""
