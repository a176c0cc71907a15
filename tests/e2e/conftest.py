"""A tiny model to serve, made once."""

from collections.abc import Iterator

import pytest

from pipelineserve_engine.nursery.owner import Nursery
from served_model import ServedModel, save_served_model


@pytest.fixture
def anyio_backend() -> str:
    """The one event loop that the server runs on."""
    return "asyncio"


@pytest.fixture(scope="session")
def served_model(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    """A folder that the server can serve, with its reference."""
    return save_served_model(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def untied_model(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    """One that other engines run too.

    Its head has weights of its own: SGLang runs no other Llama in several stages. Its attention
    heads are as large as the smallest that vLLM has for a CPU.
    """
    return save_served_model(tmp_path_factory.mktemp("untied"), is_tied=False, head_size=32)


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """One for all tests that start stages themselves: it imports once."""
    with Nursery() as opened:
        yield opened
