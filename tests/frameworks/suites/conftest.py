"""Each suite imports a framework: it is left alone by all runs but its own."""

from __future__ import annotations

import os

collect_ignore_glob = [] if "BATCHUP_NG_SUITE" in os.environ else ["*_suite.py"]
