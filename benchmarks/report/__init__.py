"""The page of a study: columns, tables, heading, the same as JSON, and a plot."""
