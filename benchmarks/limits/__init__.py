"""Programs with a limit on memory, and the peak of all their processes: ``python -m benchmarks limits``."""
