"""Plans: the rows of batch k of an epoch, by index arithmetic only."""
