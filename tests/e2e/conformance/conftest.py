"""One of each engine per run of the suite; SGLang and vLLM take most of a minute to start."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from conformance import Engine, Kind, assert_sound, sglang_engine, torch_engine, vllm_engine
from control_client import ControlSessionClient
from served_model import ServedModel


@pytest.fixture(scope="module", params=list(Kind), ids=lambda kind: kind.value)
def engine(
    request: pytest.FixtureRequest,
    untied_model: ServedModel,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Engine]:
    """A running engine of each kind in turn."""
    socket_path = tmp_path_factory.mktemp("contract") / "control.sock"
    with _started(request.param)(untied_model.folder, socket_path) as running:
        yield running
        assert_sound(running)


@pytest.fixture
def session(engine: Engine) -> Iterator[ControlSessionClient]:
    """Of an engine that runs on its static chunk and that nobody else watches."""
    with engine.client() as client:
        yield client.watch()


def _started(kind: Kind) -> Callable[[Path, Path], AbstractContextManager[Engine]]:
    match kind:
        case Kind.TORCH:
            return torch_engine
        case Kind.SGLANG:
            return sglang_engine
        case Kind.VLLM:
            return vllm_engine
