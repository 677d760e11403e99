"""How fast privrl is, as ratios against plain renderings of the same thing, measured in one run."""
