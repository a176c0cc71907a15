"""What a server says when it cannot start, and how it ends while it starts."""

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import pytest

from engine_server import EngineServer, wait_until
from pipelineserve_engine.server import main
from served_model import CONTEXT_TOKENS, ServedModel


@pytest.fixture
def _signal_handlers() -> Iterator[None]:
    """The server's `main` takes signals over; give them back to the test runner."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def model_copy(served_model: ServedModel, tmp_path: Path) -> Path:
    """A model's folder to damage."""
    return Path(copytree(served_model.folder, tmp_path / "model"))


# In this process: none of these comes as far as a stage


@pytest.mark.usefixtures("_signal_handlers")
@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (
            ["--stages=0", "--port=-1", "--dtype=int8"],
            [
                "(3 faults)",
                "stages: expected 1 to 64, got 0",
                "port: expected 0 to 65535, got -1",
                "dtype: expected one of float32, bfloat16, float16, got int8",
            ],
        ),
        (["--stages=6"], ["stages: expected 1 to 5 (the model's layers), got 6"]),
        (
            ["--stages=2", "--layers-per-stage=2,2"],
            ["layers_per_stage: sums up to 4 layers, but the model has 5; change the entries"],
        ),
        (
            ["--stages=2", "--layers-per-stage=5"],
            ["layers_per_stage: expected one entry for each of 2 stages, got 1"],
        ),
        (
            [f"--max-context-tokens={CONTEXT_TOKENS + 1}"],
            [f"max_context_tokens: expected at most the model's own {CONTEXT_TOKENS}"],
        ),
        (["--kv-tokens=1000000000"], ["kv_tokens: 1000000000 tokens take", "lower it"]),
        (["--host=192.0.2.1"], ["cannot listen on 192.0.2.1:0", "choose another"]),
        (["--model-folder=nowhere"], ["found no config.json; check the path"]),
    ],
    ids=[
        "several at once",
        "too many stages",
        "layers do not sum up",
        "layers of another number of stages",
        "context",
        "KV pool",
        "address",
        "no model",
    ],
)
def test_what_cannot_work_is_one_message_and_exit_status_1(
    served_model: ServedModel,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    parts: list[str],
) -> None:
    folder = f"--model-folder={served_model.folder}"
    assert main([folder, "--served-name=m", "--port=0", *flags]) == 1
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert message.count("error: ") == 1
    for part in parts:
        assert part in message
    assert "Traceback" not in message


@pytest.mark.usefixtures("_signal_handlers")
@pytest.mark.parametrize(
    ("file", "text", "part"),
    [
        ("config.json", None, "found no config.json; check the path"),
        ("config.json", "{", "config.json: cannot be read"),
        (
            "config.json",
            json.dumps({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}),
            "got architecture GPT2LMHeadModel, expected one of LlamaForCausalLM",
        ),
        ("tokenizer.json", None, "the tokenizer cannot be loaded"),
        ("tokenizer.json", "{", "the tokenizer cannot be loaded"),
    ],
    ids=["no config", "broken config", "other model", "no tokenizer", "broken tokenizer"],
)
def test_a_folder_that_is_no_model_is_named(
    model_copy: Path, capsys: pytest.CaptureFixture[str], file: str, text: str | None, part: str
) -> None:
    (model_copy / file).unlink()
    if text is not None:
        (model_copy / file).write_text(text)
    assert main([f"--model-folder={model_copy}", "--served-name=m", "--port=0"]) == 1
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert part in message
    assert str(model_copy) in message


@pytest.mark.usefixtures("_signal_handlers")
def test_a_malformed_flag_exits_with_2() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--model-folder=m", "--served-name=m", "--stages=two"])
    assert ended.value.code == 2


# In a process of its own


def test_a_taken_port_ends_it_before_any_stage_starts(served_model: ServedModel) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with EngineServer(served_model.folder, port=port) as server:
            assert server.wait() == 1
    advice = "choose another port, or end the process that uses this one"
    assert server.lines == [
        f"error: cannot listen on 127.0.0.1:{port}: Address already in use; {advice}"
    ]
    assert server.stage_pids == ()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_before_any_stage_runs_ends_it_without_waiting_for_one(
    served_model: ServedModel, number: signal.Signals, code: int
) -> None:
    with EngineServer(served_model.folder, "--stages=2") as server:
        server.wait_for_line("loading")
        server.signal(number)
        assert_ended(server, code)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_a_signal_as_soon_as_the_stages_run_ends_them_too(
    served_model: ServedModel, number: signal.Signals, code: int
) -> None:
    with EngineServer(served_model.folder, "--stages=2") as server:
        wait_until(server.running_stages, lambda pids: len(pids) == 2)
        server.signal(number)
        assert_ended(server, code)


def assert_ended(server: EngineServer, code: int) -> None:
    """The server ended so, and neither a process nor a file of it is left."""
    assert server.wait() == code
    wait_until(server.live_pids, lambda pids: not pids)
    assert server.leftovers() == []
    assert "Traceback" not in server.log


def test_it_ends_with_the_process_that_started_it(served_model: ServedModel) -> None:
    with EngineServer(served_model.folder, "--parent-pid=1") as server:  # never its parent
        assert server.wait() == 0
        assert server.live_pids() == ()
        assert server.leftovers() == []
