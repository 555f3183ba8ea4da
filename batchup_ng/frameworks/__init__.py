"""Hands batches over to frameworks. Each framework has its own module, which imports no other framework.

Each function takes a :class:`~batchup_ng.Loader`, a source that a pool works for, or an iterator of batches.
The modules share ``handover.py`` and ``ahead.py``.
"""
