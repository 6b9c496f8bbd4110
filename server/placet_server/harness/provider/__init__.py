"""Asking a model, once: one HTTP request for one turn, and either a whole answer or a TurnFailure.

answer      what comes of a turn, and the protocol `Provider`: the rest of the harness knows no more of models
catalogue   which models the operator has, by name
credential  handles to secrets, which are never told
adapter     the provider of all models: one client per model and credential
content     what was told and said, for spans, without what is sensitive
delta       what is said while it is said, in pieces worth storing
kinds       how the client of each kind of model is made, and told to retry nothing
openai_client  OpenAI's client, without its walks through what is sent and what comes
exchange    what a request sends and gets by HTTP, within bounds
request     one request with the library, from text to text
failure     what an error of the library means, by its class and status
wire        messages as the library's and as text
local       the local model, in the library's form

The last seven, from `kinds` on, import libraries of the extra `agents`, which takes more than a second: they are
imported at the first need, in a thread (`adapter.load`).
"""
