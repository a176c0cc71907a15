"""`pserve render` prints what a cluster would get; the examples' objects stand in golden files."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from pipelineserve.api import parse_resource
from pipelineserve.errors import InvalidInputError, PipelineServeError
from pipelineserve_cli.render import (
    UNKNOWN_UID,
    OutputFormat,
    objects_text,
    render,
    subject_without_cluster,
)
from pipelineserve_operator.render import all_objects
from rendering import SETTINGS

ROOT = Path(__file__).parents[3]
EXAMPLES = ("quickstart", "two-pods")
GOLDEN = Path(__file__).parent / "rendered"


def rendered(*arguments: str, example: str = "quickstart") -> Result:
    path = ROOT / "examples" / f"{example}.yaml"
    return CliRunner().invoke(render, ["-f", str(path), *arguments])


def a_manifest(folder: Path, text: str) -> str:
    path = folder / "manifest.yaml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_objects_of_an_example_are_those_that_were_looked_at(example: str) -> None:
    # After a change that is meant: `pserve render` with these images, and a look at the difference.
    path = ROOT / "examples" / f"{example}.yaml"
    subject = subject_without_cluster(parse_resource(path.read_text(), example), None)
    text = objects_text(all_objects(subject, SETTINGS), OutputFormat.YAML)
    assert text == (GOLDEN / f"{example}.yaml").read_text()


def test_yaml_and_json_say_the_same() -> None:
    documents = list(yaml.safe_load_all(rendered(example="two-pods").stdout))
    listed = json.loads(rendered("-o", "json", example="two-pods").stdout)
    assert (listed["kind"], listed["items"]) == ("List", documents)


def test_texts_that_look_like_numbers_stay_texts_for_every_reader() -> None:
    text = objects_text([{"a": "1e3", "b": "0x1F", "c": "yes", "d": "x\ny\n"}], OutputFormat.YAML)
    assert '"1e3"' in text
    assert '"0x1F"' in text
    assert yaml.safe_load(text) == {"a": "1e3", "b": "0x1F", "c": "yes", "d": "x\ny\n"}


def test_the_namespace_is_the_one_asked_for() -> None:
    documents = yaml.safe_load_all(rendered("--namespace", "models").stdout)
    assert {one["metadata"]["namespace"] for one in documents} == {"models"}


def test_another_namespace_than_the_manifests_is_refused() -> None:
    text = (ROOT / "examples" / "quickstart.yaml").read_text()
    resource = parse_resource(text.replace("metadata:\n", "metadata:\n  namespace: mine\n"), "a")
    assert subject_without_cluster(resource, None).namespace == "mine"
    with pytest.raises(InvalidInputError, match=r"metadata.namespace: expected models"):
        subject_without_cluster(resource, "models")


def test_what_stands_for_the_uid_is_said_beside_the_objects() -> None:
    result = rendered()
    assert UNKNOWN_UID in result.stderr
    assert UNKNOWN_UID in result.stdout


def test_images_can_be_named() -> None:
    result = rendered("--engine-image", "a.example/e:1", "--controller-image", "a.example/c:2")
    assert {"a.example/e:1", "a.example/c:2"} == {
        container["image"]
        for one in yaml.safe_load_all(result.stdout)
        if one["kind"] == "StatefulSet"
        for container in one["spec"]["template"]["spec"]["containers"]
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("type: Torch", "{type: SGLang, args: ['--pp=1']}"),
            "spec.engine.args[0]: --pp is set",
        ),
        (
            ("type: Torch", "{type: Torch, args: ['--port=1']}"),
            "spec.engine.args[0]: --port is set",
        ),
        (("stages: 2 ", "stages: two "), "spec.parallelism.stages: expected an integer"),
    ],
)
def test_faults_are_named_and_nothing_is_printed(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    text = (ROOT / "examples" / "quickstart.yaml").read_text().replace(*change)
    result = CliRunner().invoke(render, ["-f", a_manifest(tmp_path, text)])
    assert isinstance(result.exception, PipelineServeError)
    assert message in str(result.exception)
    assert result.stdout == ""
