"""A short share of `bench/soak.py`: mixed load with clients that leave, on real stages."""

import asyncio
import signal

import pytest
from bench.soak import SoakSettings, soak

from engine_server import NAME, EngineServer
from served_model import ServedModel


@pytest.mark.timeout(600)
def test_a_mixed_load_whose_clients_leave_at_any_moment_loses_nothing_and_holds_nothing(
    served_model: ServedModel,
) -> None:
    flags = ("--stages=2", "--static-chunk-tokens=48", "--kv-tokens=2048")
    with EngineServer(served_model.folder, *flags) as server:
        server.wait_serving()
        settings = SoakSettings(
            url=server.url, model=NAME, run_s=20.0, seed=7, sample_period_s=0.5,
            max_output_tokens=120,
        )  # fmt: skip
        result = asyncio.run(soak(settings, server.pid))
        assert result.violations == []
        assert result.ends["finished"] > 20
        assert len(result.growth_bytes) == 3
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert "ERROR" not in server.log
        assert "Traceback" not in server.log
