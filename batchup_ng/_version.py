"""The version of the package, read by the build without an import of the package."""

__version__ = "0.1.0"
