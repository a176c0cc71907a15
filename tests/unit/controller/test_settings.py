"""Settings: flags with bounds, and everything that is wrong in one message."""

from dataclasses import fields

import pytest

from pipelineserve.errors import InvalidInputError
from pipelineserve_controller.settings import SidecarSettings, parse_settings

LOCAL = ["--engine-address", "unix:/run/control.sock"]
TLS = [
    *("--engine-ca-file", "ca", "--engine-certificate-file", "crt", "--engine-key-file", "key"),
]


def test_a_local_engine_needs_no_other_flag() -> None:
    settings = parse_settings(LOCAL)
    assert settings == SidecarSettings(engine_address="unix:/run/control.sock")
    assert settings.is_engine_local


def test_each_flag_is_read_as_its_kind() -> None:
    settings = parse_settings([*LOCAL, "--turns-per-second", "2.5", "--port", "81"])
    assert (settings.turns_per_second, settings.port) == (2.5, 81)


def test_every_setting_has_a_text() -> None:
    assert [entry.name for entry in fields(SidecarSettings) if not entry.metadata["help"]] == []


def test_an_engine_elsewhere_needs_mutual_tls() -> None:
    assert parse_settings(["--engine-address", "leader:9000", *TLS]).engine_ca_file == "ca"
    with pytest.raises(InvalidInputError, match="3 faults") as caught:
        parse_settings(["--engine-address", "leader:9000"])
    assert "engine_key_file: expected a file" in str(caught.value)


@pytest.mark.parametrize("address", ["", "leader", "leader:", "leader:port", "/run/control.sock"])
def test_an_address_of_another_form_is_refused(address: str) -> None:
    with pytest.raises(InvalidInputError, match="engine_address: expected unix:/path or HOST:PORT"):
        parse_settings(["--engine-address", address, *TLS])


def test_certificates_beside_a_socket_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="engine_ca_file: expected nothing"):
        parse_settings([*LOCAL, *TLS])


def test_an_operator_needs_its_authority_and_a_token() -> None:
    with pytest.raises(InvalidInputError, match="operator_token_file: expected a file"):
        parse_settings([*LOCAL, "--operator-address", "operator:443"])


@pytest.mark.parametrize(
    ("flag", "value"), [("port", "70000"), ("turns-per-second", "0"), ("journal-files", "0")]
)
def test_values_out_of_bounds_are_named(flag: str, value: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{flag.replace('-', '_')}: expected"):
        parse_settings([*LOCAL, f"--{flag}", value])
