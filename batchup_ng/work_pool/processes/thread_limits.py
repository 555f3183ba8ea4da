"""How many threads the libraries for linear algebra may use in a worker.

Sums that are shared out to threads are added up in another order, so that a product of matrices has other last bits
with one thread than with two. Workers therefore use one, however many CPUs and workers there are: they get environment
variables, which the libraries, torch among them, read when they are loaded.
"""

from __future__ import annotations

VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def environment(threads: int | None) -> dict[str, str]:
    """Return the variables that make libraries use so many threads; none where `threads` is None.

    >>> environment(1)["OMP_NUM_THREADS"], environment(None)
    ('1', {})
    """
    return {} if threads is None else dict.fromkeys(VARIABLES, str(threads))
