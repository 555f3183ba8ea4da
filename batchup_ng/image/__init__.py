"""What BatchUp kept under ``batchup.image``, at the same import paths."""
