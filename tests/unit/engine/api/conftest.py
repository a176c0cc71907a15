"""Async tests of this folder run on asyncio."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """The one event loop that the engine runs on."""
    return "asyncio"
