"""A tiny model to serve, made once."""

import pytest

from served_model import ServedModel, save_served_model


@pytest.fixture
def anyio_backend() -> str:
    """The one event loop that the server runs on."""
    return "asyncio"


@pytest.fixture(scope="session")
def served_model(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    """A folder that the server can serve, with its reference."""
    return save_served_model(tmp_path_factory.mktemp("served"))
