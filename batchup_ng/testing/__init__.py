"""Checks of one's own code: that a source is reproducible, that a part keeps its contract.

:func:`assert_reproducible` needs nothing beyond the library. The contracts are test suites that whoever writes an
accessor, source, sampler or pool can inherit; they need pytest, so import them from their own modules:
``batchup_ng.testing.accessors``, ``.pools``, ``.samplers``, ``.sources``.
"""

from .reproducible import assert_reproducible

__all__ = ["assert_reproducible"]
