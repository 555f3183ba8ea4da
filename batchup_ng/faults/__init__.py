"""Samples that cannot be made: which they are, what is done about them."""
