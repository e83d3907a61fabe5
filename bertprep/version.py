"""The version, which manifests and requests name too."""

__version__ = "0.2.0"
