"""Changing what governs is an action like any other: of a built-in capability, through the gates, with its evidence.

use.py       what such a capability is: what it may be asked, what the server finds out about it, what it does
governor.py  before: completes what is asked, so that policies and people see what it would do; and the handlers
govern.py    the use case of the RPCs: the action, run or met or waiting, and its typed answer
bootstrap.py who puts the first policies in force
failure.py   a typed error as what a handler ends with, and back
tools.py     the capabilities as they are declared
catalog.py, policy.py, recovery.py    what they do
"""
