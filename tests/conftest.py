"""Settings that all tests share."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No deadline and no check of how fast examples are made: how long they take is the machine's affair. In CI the
# examples are the same every time, so that a run there says something about the change and not about chance.
settings.register_profile(
    "romanesco", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("romanesco")
