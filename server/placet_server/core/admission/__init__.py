"""Gates 1 to 8: from a request to a stored intent."""
