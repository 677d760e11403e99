"""Who is trusted, hence where the noise goes."""
