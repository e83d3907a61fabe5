"""A data set as one HTML page to read: how it was made, how much there is, whether it is right, and what it looks like.

`page` is a pure function of what the validator found; `report` reads and writes the files around it.
"""

from bertprep.check.report.excerpts import Excerpt
from bertprep.check.report.html_page import page
from bertprep.check.report.stage import report

__all__ = ["Excerpt", "page", "report"]
