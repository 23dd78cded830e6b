"""``python -m romanesco.testing.fake_server``: the fake server in a process of its own."""

from __future__ import annotations

import sys

from romanesco.testing._fake_server_process import main

if __name__ == "__main__":
    sys.exit(main())
