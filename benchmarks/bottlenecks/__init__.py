"""Loaders with a planted bottleneck, and what ``explain()`` says of them: ``python -m benchmarks bottlenecks``."""
