"""Defines the version, which is also in manifests and in requests to servers.

Between two releases it is the next version with `.dev0`, so a file made in between never seems to be made by a release.
"""

__version__ = "1.0.0.dev0"
