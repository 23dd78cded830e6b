"""``python -m romanesco``: the command line."""

from __future__ import annotations

import sys

from romanesco.interfaces.cli import main

if __name__ == "__main__":
    sys.exit(main())
