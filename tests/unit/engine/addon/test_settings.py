"""The add-on is told what to do in environment variables, and names what is wrong in them."""

import pytest

from pipelineserve.errors import InvalidInputError
from pipelineserve_engine.addon.settings import AddOnSettings, read_settings
from pipelineserve_engine.control.address import TlsFiles

CHUNK = {"PIPELINESERVE_ADDON_STATIC_CHUNK_TOKENS": "512"}


def faults_of(environ: dict[str, str]) -> dict[str, str]:
    with pytest.raises(InvalidInputError) as raised:
        read_settings(environ)
    return {fault.field: fault.message for fault in raised.value.faults}


def test_without_settings_there_is_no_add_on() -> None:
    assert read_settings({"PATH": "/bin", "PIPELINESERVE_CACHE": "/cache"}) is None


def test_reads_all_settings() -> None:
    environ = {
        **CHUNK,
        "PIPELINESERVE_ADDON_CONTROL_ADDRESS": "10.0.0.1:7000",
        "PIPELINESERVE_ADDON_CONTROL_TLS_CERTIFICATE": "/a",
        "PIPELINESERVE_ADDON_CONTROL_TLS_KEY": "/b",
        "PIPELINESERVE_ADDON_CONTROL_TLS_CLIENT_CA": "/c",
    }
    assert read_settings(environ) == AddOnSettings(512, "10.0.0.1:7000", TlsFiles("/a", "/b", "/c"))


def test_followers_need_no_address() -> None:
    assert read_settings(CHUNK) == AddOnSettings(512)


@pytest.mark.parametrize("chunk", ["", "0", "-1", "many", "1.5"])
def test_names_a_chunk_that_is_none(chunk: str) -> None:
    faults = faults_of({"PIPELINESERVE_ADDON_STATIC_CHUNK_TOKENS": chunk})
    name, message = faults.popitem()
    assert name == "PIPELINESERVE_ADDON_STATIC_CHUNK_TOKENS"
    assert message == f"expected a number of tokens of at least 1, got {chunk or 'nothing'}"


def test_names_every_variable_that_is_wrong_at_once() -> None:
    faults = faults_of(
        {
            "PIPELINESERVE_ADDON_STATIC_CHUNK": "512",
            "PIPELINESERVE_ADDON_CONTROL_ADDRESS": "unix:relative",
        }
    )
    assert set(faults) == {
        "PIPELINESERVE_ADDON_STATIC_CHUNK",
        "PIPELINESERVE_ADDON_STATIC_CHUNK_TOKENS",
        "PIPELINESERVE_ADDON_CONTROL_ADDRESS",
    }
    assert "is no setting of the add-on" in faults["PIPELINESERVE_ADDON_STATIC_CHUNK"]


def test_a_port_without_tls_is_refused() -> None:
    assert "PIPELINESERVE_ADDON_CONTROL_TLS_KEY" in faults_of(
        {**CHUNK, "PIPELINESERVE_ADDON_CONTROL_ADDRESS": "127.0.0.1:7000"}
    )
