"""For programs that call setup.py, such as ``python setup.py --version``. All it says is in pyproject.toml."""

from setuptools import setup

setup()
