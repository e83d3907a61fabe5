"""Defines the version, which is also in manifests and in requests to servers.

Between two releases it is the next version with `.dev0`, so programs that write different bytes never have the same release.
"""

__version__ = "0.3.0.dev0"
