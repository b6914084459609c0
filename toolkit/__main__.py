"""Entry point of ``python -m toolkit``."""

import os
import sys

from toolkit.cli import main

# Set before torch is loaded: threads that spin while they wait make a short step ten times slower
# if another process uses the processor (benchmarks/threads.py).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

if __name__ == "__main__":
    sys.exit(main())
