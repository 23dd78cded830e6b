from collections.abc import Iterator

import pytest

from tests.runtime.processes import Forker


@pytest.fixture(scope="session")
def jobs() -> Iterator[Forker]:
    """Starts runs in processes of their own, one at a time."""
    with Forker() as forker:
        yield forker
