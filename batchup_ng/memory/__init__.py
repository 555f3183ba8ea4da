"""Memory: how much there is, blocks that are used again, files that processes share, the pages of mapped files."""
