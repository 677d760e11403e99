"""Studies of simulated people: `run`, `sweep`, and sampled tables."""
