"""What to optimise: objective, constraints, models and losses."""
