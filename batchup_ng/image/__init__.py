"""The contents of BatchUp's ``batchup.image``, at the same import paths."""
