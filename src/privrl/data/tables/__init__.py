"""Tables in Parquet files: reading, checking, sharding, splitting and writing them."""
