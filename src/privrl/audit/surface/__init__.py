"""What is attacked: everything a recipe asks and publishes, and records made to break a bound."""
