"""`python -m routeguard`."""

import sys

from routeguard.cli import main

sys.exit(main())
