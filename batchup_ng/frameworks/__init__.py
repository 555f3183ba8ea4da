"""Hands batches over to frameworks, one module each; importing one imports no other framework.

Each function takes a :class:`~batchup_ng.Loader`, a source that a pool works for, or an iterator of batches.
``handover.py`` has what the modules share.
"""
