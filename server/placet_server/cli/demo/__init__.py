"""`placet demo`: a crash in the middle of effects, told as a story whose every claim is counted at the provider.

`command` is the entry; `story` tells, act by act, and `people` of those who say yes; `stage` holds the processes;
`caller` waits for answers while the server dies; `claim` is what has to hold; `teller` prints.
"""
