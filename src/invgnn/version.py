"""The version, in one place."""

from importlib.metadata import version

__version__ = version("invgnn")
