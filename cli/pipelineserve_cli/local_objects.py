"""The objects of a resource as local mode runs them, rendered as an operator would."""

from collections.abc import Sequence
from dataclasses import replace

from pipelineserve.api import PipelineServe
from pipelineserve_cli.pods.specs import PodSpec, pods_of
from pipelineserve_cli.render import subject_without_cluster
from pipelineserve_operator.render import JsonObject, OperatorSettings, Subject, all_objects
from pipelineserve_operator.render.configuration import control_config_map
from pipelineserve_operator.render.containers import SIDECAR

# SGLang may have an environment of its own; whatever else runs is in this one.
SGLANG_IMAGE = "sglang"
_IMAGE = "local"
# Users are this user, and sidecars have the ConfigMap's file alone.
_SETTINGS = OperatorSettings(
    engine_image=_IMAGE, controller_image=_IMAGE, sglang_image=SGLANG_IMAGE, user_id=None
)


class LocalObjects:
    """One resource with one replica, and what became of it since the start.

    Args:
        resource: as it was started.

    Raises:
        PipelineServeError: it cannot be rendered.
    """

    def __init__(self, resource: PipelineServe) -> None:
        self._subject = _as_local(subject_without_cluster(resource, None))
        self.objects: Sequence[JsonObject] = all_objects(self._subject, _SETTINGS)

    def pods(self, *, has_control: bool) -> list[PodSpec]:
        """Its pods, the leader's first; without control no sidecar is among their containers."""
        return [
            replace(
                pod,
                containers=tuple(
                    one for one in pod.containers if has_control or one.name != SIDECAR
                ),
            )
            for pod in pods_of(self.objects)
        ]

    def edited(self, resource: PipelineServe) -> list[JsonObject]:
        """The objects that an edit of live fields changes, with the next generation."""
        self._subject = _as_local(
            replace(self._subject, spec=resource.spec, generation=self._subject.generation + 1)
        )
        return [control_config_map(self._subject, _SETTINGS)]


def with_engine_argument(resource: PipelineServe, argument: str) -> PipelineServe:
    """The resource with one more of `spec.engine.args`."""
    engine = resource.spec.engine
    more = engine.model_copy(update={"args": (*engine.args, argument)})
    return resource.model_copy(update={"spec": resource.spec.model_copy(update={"engine": more})})


def _as_local(subject: Subject) -> Subject:
    """With one replica, and without the resource's own image."""
    engine = subject.spec.engine.model_copy(update={"image": None})
    changed = {"replicas": 1, "engine": engine}
    return replace(subject, spec=subject.spec.model_copy(update=changed))
