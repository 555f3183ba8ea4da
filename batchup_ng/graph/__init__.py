"""The nodes that a source is made of: which rows, how they are read, what is done to them."""
