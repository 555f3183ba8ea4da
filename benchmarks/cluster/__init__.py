"""A simulated cluster that makes batches for one consumer: ``python -m benchmarks cluster``."""
