"""A resource's template of a group: rendered once for a state of the rolling inputs, then kept.

Kept in a ControllerRevision and taken from there while the rolling inputs are the same, so that
another version of the operator, which may render other pods, replaces none that run.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pipelineserve.api import EngineType
from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve_operator.render import (
    engine_flags,
    labels,
    names,
    pods,
    sglang_flags,
    variables,
)
from pipelineserve_operator.render.labels import Role
from pipelineserve_operator.render.metadata import owned
from pipelineserve_operator.render.revisions import revision_of
from pipelineserve_operator.render.settings import OperatorSettings
from pipelineserve_operator.render.subject import JsonObject, Subject


@dataclass(frozen=True, slots=True)
class GroupTemplate:
    """What the groups of one revision have in common.

    Attributes:
        revision: of the rolling inputs.
        num_workers: pods of a group beside its leader.
        pods: a pod's template for each role; none for workers that there are none of.
    """

    revision: str
    num_workers: int
    pods: Mapping[Role, JsonObject]

    @property
    def is_spread(self) -> bool:
        """Whether a group has several pods, and so a key of its own."""
        return self.num_workers > 0

    def to_data(self) -> JsonObject:
        """For a ControllerRevision; `from_data` reads it back, whichever version wrote it."""
        return {
            "revision": self.revision,
            "workers": self.num_workers,
            "pods": {role.value: pod for role, pod in self.pods.items()},
        }


def template_from_data(data: JsonObject) -> GroupTemplate:
    """What `GroupTemplate.to_data` wrote."""
    kept = {Role(name): pod for name, pod in data["pods"].items()}
    return GroupTemplate(data["revision"], data["workers"], kept)


def group_template(subject: Subject, settings: OperatorSettings) -> GroupTemplate:
    """Render the template.

    Raises:
        InvalidInputError: arguments or variables of the resource take the place of ours.
    """
    spec = subject.spec
    match spec.engine.type:
        case EngineType.TORCH:
            faults = engine_flags.faults_in(spec.engine)
        case EngineType.SGLANG:
            faults = [*sglang_flags.faults_in(spec.engine), *_image_faults(subject, settings)]
    if faults := [*faults, *variables.faults_in(spec.engine)]:
        raise InvalidInputError(f"PipelineServe {subject.name}", faults)
    num_workers = spec.parallelism.pods_per_replica - 1
    rendered = {Role.LEADER: pods.leader_template(subject, settings)}
    if num_workers:
        rendered[Role.WORKER] = pods.worker_template(subject, settings)
    return GroupTemplate(revision_of(spec), num_workers, rendered)


def _image_faults(subject: Subject, settings: OperatorSettings) -> list[Fault]:
    if subject.spec.engine.image or settings.sglang_image:
        return []
    text = "required, but missing: the operator was given no image of SGLang with the add-on"
    return [Fault("spec.engine.image", text)]


def controller_revision(
    subject: Subject, settings: OperatorSettings, template: GroupTemplate
) -> JsonObject:
    """The object that keeps a template; never changed once it is there."""
    own = {labels.REVISION: template.revision}
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": owned(
            subject, settings, names.template(subject.name, template.revision), more_labels=own
        ),
        "revision": subject.generation,
        "data": template.to_data(),
    }
