"""The life of an action in order: admission, decision, execution, publication; recovery of what stopped
between.
"""
