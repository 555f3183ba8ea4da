"""What a page says: columns, tables, the heading, the same as JSON; a plot."""
