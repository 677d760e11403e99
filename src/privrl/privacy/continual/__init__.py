"""Running sums, released again and again."""
