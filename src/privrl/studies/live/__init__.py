"""Studies of people who arrive: `Agent`, `Controller`, tickets, and blocks."""
