"""Memory: the budget, free memory, blocks that are used again, files that processes share, pages of mapped files."""
