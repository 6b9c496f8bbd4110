"""What every layer speaks of: states, outcomes, errors, contracts. Pure; imports nothing of ours."""
