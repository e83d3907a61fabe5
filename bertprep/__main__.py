"""`python -m bertprep` is `bertprep`."""

import sys

from bertprep.cli import main

sys.exit(main())
