"""Failing samples: finds them, and defines the error policy."""
