"""Tiny models, made once."""

from collections.abc import Callable
from functools import cache

import pytest
import torch

from tiny_models import Architecture, TinyModel, save_tiny_model

MakeModel = Callable[[Architecture, bool], TinyModel]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Tiny matrices are slower with more, and results must not depend on how they are cut."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """A random model of an architecture, with the head tied to the embedding or not."""

    @cache
    def make(architecture: Architecture, is_tied: bool) -> TinyModel:
        folder = tmp_path_factory.mktemp(f"{architecture.value}-{is_tied}")
        return save_tiny_model(folder, architecture, is_tied=is_tied)

    return make


@pytest.fixture(scope="session")
def llama(tiny_model: MakeModel) -> TinyModel:
    """The plainest of them."""
    return tiny_model(Architecture.LLAMA, True)
