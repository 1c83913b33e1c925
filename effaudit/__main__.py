"""`python -m effaudit` is the `effaudit` command."""

import sys

from effaudit.cli import main

sys.exit(main())
