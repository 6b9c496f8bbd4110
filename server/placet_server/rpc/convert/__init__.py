"""Messages to model values and back: one module per concept, nothing else."""
