"""What releases cost: budgets, events, composition, ledgers and certificates."""
