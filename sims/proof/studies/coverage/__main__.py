"""``make coverage``."""

import sys

from proof.studies.coverage.command import main

sys.exit(main())
