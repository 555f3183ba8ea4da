"""One epoch: the iterator that hands out its batches, their accounting, its saved states."""
