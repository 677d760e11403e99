"""The verbs and what stands behind them: from a declaration to a certificate, people in between."""
