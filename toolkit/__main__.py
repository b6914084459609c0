"""Entry point of ``python -m toolkit``."""

import sys

from toolkit.cli import main

if __name__ == "__main__":
    sys.exit(main())
