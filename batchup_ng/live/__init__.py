"""The figures of a running program, which ``python -m batchup_ng top`` asks for."""
