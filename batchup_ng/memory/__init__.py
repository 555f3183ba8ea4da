"""Memory: how much there is, blocks that are used again, and the pages of mapped files."""
