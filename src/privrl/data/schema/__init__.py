"""What a table must look like: columns, public bounds, and errors that quote no cell."""
