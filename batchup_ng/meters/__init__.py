"""Measurements of how batches are made: stopwatches in the workers, and the times of each batch."""
