"""What only a real vLLM has: names that may move, KV taken back, modes without control."""

import subprocess
from collections.abc import Iterator

import grpc
import pytest

from conformance import Engine, assert_sound, end_lease, holding_policy, vllm_engine
from control_client import ControlClient, a_fixed_policy
from foreign_server import TEST_TIMEOUT_S
from pipelineserve import metrics
from served_model import ServedModel
from vllm_server import vllm_python

pytestmark = pytest.mark.timeout(TEST_TIMEOUT_S)

# Of 32 tokens: some of the twelve requests of the test that runs out of it must start again.
FEW_KV_BLOCKS = 36


def test_the_installed_vllm_is_as_the_add_on_expects() -> None:
    command = [str(vllm_python()), "-m", "pipelineserve_engine.vllm.targets"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, ""), checked.stderr


@pytest.fixture(scope="module")
def engine(untied_model: ServedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Little KV."""
    socket_path = tmp_path_factory.mktemp("mode") / "control.sock"
    few = (f"--num-gpu-blocks-override={FEW_KV_BLOCKS + 1}", "--max-model-len=1024")
    with vllm_engine(untied_model.folder, socket_path, *few) as running:
        yield running
        assert_sound(running)


def test_held_decodes_survive_kv_that_runs_out(engine: Engine) -> None:
    prompts = [f"Pressure {index} " + "rises and " * 20 for index in range(12)]
    expected = [engine.texts([prompt], 120)[0] for prompt in prompts]
    with engine.client() as client:
        session = client.watch()
        session.apply(1, holding_policy(max_gap_s=1.0, most_decodes=2))
        assert engine.texts(prompts, 120) == expected
        session.wait(lambda s: len(s.requests) == len(prompts))
        assert max(request.held_s for request in session.requests) > 0
        assert max(request.num_requeues for request in session.requests) > 0
        idle = session.wait_snapshot(lambda now: not now.num_running + now.num_waiting)
        assert (idle.num_held, idle.kv_free_ratio) == (0, 1.0)
        end_lease(session, 2)


def test_a_vllm_that_cannot_be_controlled_serves_on_and_says_so(
    untied_model: ServedModel, tmp_path_factory: pytest.TempPathFactory
) -> None:
    socket_path = tmp_path_factory.mktemp("deaf") / "control.sock"
    no_plugins = {"VLLM_PLUGINS": "none"}
    with (
        vllm_engine(untied_model.folder, socket_path, environ=no_plugins) as engine,
        ControlClient(engine.address) as client,
    ):
        session = client.watch()
        hello = session.hello
        assert hello is not None
        assert list(hello.capabilities) == []
        assert "has not loaded the plugin 'pipelineserve'" in hello.inactive_reason
        with pytest.raises(grpc.RpcError) as raised:
            session.apply(1, a_fixed_policy(32))
        assert "cannot be controlled" in str(raised.value)
        assert engine.read_metrics().value(metrics.CONTROL_ACTIVE) == 0
        assert engine.complete("Served all the same", 5)
