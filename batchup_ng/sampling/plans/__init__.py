"""Which rows are in batch k of an epoch: pure index arithmetic."""
