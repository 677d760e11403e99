"""Studies without a trusted server: `Client`, `Server`, and what travels between them."""
