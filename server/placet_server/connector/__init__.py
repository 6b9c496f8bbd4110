"""Dialling handlers in other processes: the client side of ConnectorService.

setup         from a configuration and a store to all of this
settings      what an operator decides
address       which hosts may be dialled, and the address that is, once checked
link          one address: its channel, what it describes, how much may be begun there
frames        messages of the conversation to what the core knows, and back
conversation  one attempt: start, accepted, proceed, and what then happens
handler       a tool whose call is a conversation, and whose lookup is asked there
token         what a connector believes us by
routes        which manifest's capabilities are where; what the core sees of all this
"""
