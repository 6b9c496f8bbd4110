"""What stopped in between: rescue, resume, reconcile, report."""
