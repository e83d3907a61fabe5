"""The version, which manifests and requests name too.

Between two releases it is the next one's with `.dev0`: two programs that write different bytes never name the same release.
"""

__version__ = "0.3.0.dev0"
