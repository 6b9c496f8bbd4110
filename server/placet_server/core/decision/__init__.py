"""Whether it may happen: what policies say, and people.

policy       what the policies of a tenant say about a call; policy_rules, policy_slice: how they are asked;
             policy_head: whom and what one is about
policy_explain what they said; refusal: a call that they refused, kept for whoever asks why
recheck      policies asked again before a stored action begins
authority    whose roles and groups count for a decision, by token, file or service (authority_http)
request      what people are shown of an action, and what their decision is bound to; question: the answer to one
view         looking at it, and at whether one may decide it
voter        who decides, with the authority that counts
watch        what happens to approvals, as a feed
claim        who looks at which
decide       a vote, and what follows from it
revoke       a yes that is taken back
expire       time that passes
consume      the action's start, which uses it up
"""
