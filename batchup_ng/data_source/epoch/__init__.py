"""One epoch: the iterator of its batches, their accounting, and its saved states."""
