"""What a page says: medians and ratios, tables, the heading, the same as JSON."""
