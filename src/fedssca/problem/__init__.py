"""What to optimise: the objective, the constraints, and ready-made models."""
