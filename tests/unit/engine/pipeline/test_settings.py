"""The engine's flags: one for each field, refused all at once, with the field's name."""

from dataclasses import Field, fields
from pathlib import Path

import pytest

from pipelineserve.errors import InvalidInputError
from pipelineserve_engine.settings import _BOUNDS, EngineSettings, parse_settings

REQUIRED = ("--model-folder=model", "--served-name=org/m")

HOSTS = {
    "stages": 2,
    "stage_addresses": "10.0.0.2,10.0.0.3",
    "leader_address": "10.0.0.1",
    "leader_port": 7600,
    "group_key_file": "key",
}


def test_only_the_model_and_its_name_are_required() -> None:
    settings = parse_settings(REQUIRED)
    assert settings == EngineSettings(model_folder=Path("model"), served_name="org/m")


CHOSEN_VALUES = {
    "dtype": "bfloat16",
    "schedule": "fill_drain",
    "control_address": "127.0.0.1:0",
    "transport": "gloo",
    "stage_addresses": "a,b",  # for the two stages
}


def a_value_of(field: Field[object]) -> object:
    """A value in bounds that is not the default."""
    if field.name in _BOUNDS:
        return _BOUNDS[field.name][0] + 1
    other = Path("somewhere") if "Path" in str(field.type) else "something"
    return CHOSEN_VALUES.get(field.name, other)


def test_every_field_is_a_flag_of_its_name() -> None:
    values = {field.name: a_value_of(field) for field in fields(EngineSettings)}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]
    settings = parse_settings(flags)
    assert {name: getattr(settings, name) for name in values} == values
    assert all(value != getattr(parse_settings(REQUIRED), name) for name, value in values.items())


def test_names_every_field_out_of_bounds_in_one_message() -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_settings(
            [
                *REQUIRED,
                *(
                    "--stages=0",
                    "--port=70000",
                    "--block-tokens=-1",
                    "--dtype=int8",
                    "--transport=mail",
                ),
                *("--static-chunk-tokens=4096", "--max-chunk-tokens=1024"),
            ]
        )
    assert {fault.field for fault in refused.value.faults} == {
        "stages",
        "port",
        "block_tokens",
        "dtype",
        "transport",
        "static_chunk_tokens",
    }
    message = str(refused.value)
    assert message.startswith("the engine's configuration is not valid (6 faults):\n")
    assert "port: expected 0 to 65535, got 70000" in message
    assert "dtype: expected one of float32, bfloat16, float16, got int8" in message
    assert "static_chunk_tokens: expected at most max_chunk_tokens, 1024, got 4096" in message


@pytest.mark.parametrize("name", _BOUNDS)
@pytest.mark.parametrize("end", [0, 1], ids=["low", "high"])
def test_bounds_themselves_pass_and_what_is_beyond_does_not(name: str, end: int) -> None:
    bound = _BOUNDS[name][end]
    beyond = bound + (1 if end else -1)
    flag = f"--{name.replace('_', '-')}"
    # These two are bounded by each other as well.
    room = ["--max-chunk-tokens=1048576", "--static-chunk-tokens=1"]
    if name in ("leader_port", "group_epoch") and end:  # only for stages of other hosts
        room += [f"--{key.replace('_', '-')}={value}" for key, value in HOSTS.items()]
    assert getattr(parse_settings([*REQUIRED, *room, f"{flag}={bound}"]), name) == bound
    with pytest.raises(InvalidInputError, match=rf"{name}: expected .*, got {beyond}"):
        parse_settings([*REQUIRED, *room, f"{flag}={beyond}"])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([*REQUIRED, "--stages=two"], "argument --stages: invalid int value: 'two'"),
        ([*REQUIRED, "--stage=2"], "unrecognized arguments: --stage=2"),
        ([*REQUIRED, "extra"], "unrecognized arguments: extra"),
        (["--served-name=m"], "required: --model-folder"),
    ],
    ids=["malformed", "shortened", "positional", "missing"],
)
def test_malformed_flags_exit_with_2_and_name_the_flag(
    capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_settings(flags)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_the_help_explains_every_flag_and_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_settings(["--help"])
    assert ended.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for field in fields(EngineSettings):
        assert f"--{field.name.replace('_', '-')}" in text
        assert field.metadata["help"] in text
    assert "(default: 512)" in text


def settings_with(**values: object) -> EngineSettings:
    return EngineSettings(model_folder=Path("model"), served_name="m", **values)  # type: ignore[arg-type]


def test_stages_of_other_hosts_are_listed_by_address() -> None:
    assert settings_with(**HOSTS).stage_address_list == ("10.0.0.2", "10.0.0.3")
    assert settings_with().stage_address_list == ()


@pytest.mark.parametrize("name", ["leader_address", "leader_port", "group_key_file"])
def test_what_stage_addresses_need_is_asked_for(name: str) -> None:
    given = {key: value for key, value in HOSTS.items() if key != name}
    with pytest.raises(InvalidInputError, match=f"{name}: needed with stage_addresses"):
        settings_with(**given)


@pytest.mark.parametrize(
    "values",
    [
        {"leader_address": "a"},
        {"leader_port": 1},
        {"group_key_file": "key"},
        {"group_epoch": 1},
    ],
)
def test_what_only_stage_addresses_need_is_refused_without_them(values: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError, match=f"{next(iter(values))}: has no effect without"):
        settings_with(**values)


@pytest.mark.parametrize("addresses", ["a", "a,b,c", "a,", ",b"])
def test_every_stage_needs_one_address(addresses: str) -> None:
    with pytest.raises(InvalidInputError, match="one address for each of 2 stages, got"):
        settings_with(**{**HOSTS, "stage_addresses": addresses})
