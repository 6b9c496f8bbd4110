"""The life of an action in its order: admission, decision, execution, publication; and recovery of whatever stopped in between."""
