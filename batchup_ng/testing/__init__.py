"""Checks of your own code: whether a source is reproducible, and whether a part keeps its contract.

:func:`assert_reproducible` needs nothing beyond the library. The contracts of accessors, sources and samplers are test
suites to inherit; they need pytest, so import them from their own modules: ``batchup_ng.testing.accessors``,
``.samplers``, ``.sources``.
"""

from .reproducible import assert_reproducible

__all__ = ["assert_reproducible"]
