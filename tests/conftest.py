"""Settings that all tests share."""

from __future__ import annotations

import os

from hypothesis import settings

# No deadline: how long an example takes is the machine's affair. In CI the examples are the same every time, so
# that a run there says something about the change and not about chance.
settings.register_profile("romanesco", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("romanesco")
