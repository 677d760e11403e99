"""The cost of releases: budgets, events, composition, ledgers and certificates."""
