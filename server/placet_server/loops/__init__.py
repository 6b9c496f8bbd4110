"""What runs by itself, each loop an agent noun."""
