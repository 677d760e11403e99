"""Where the shards of a data set are added up, and seeds are simulated: in this process, in others, or on a cluster."""
