"""Contracts as test suites, which whoever writes an accessor, source, sampler or pool can inherit.

They need pytest, which is why nothing here is imported by the rest of the package.
"""
