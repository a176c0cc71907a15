"""The objects of a resource as local mode runs them, rendered as an operator would."""

from collections.abc import Sequence
from dataclasses import replace

from pipelineserve.api import PipelineServe
from pipelineserve_cli.pods.specs import PodSpec, pods_of
from pipelineserve_cli.render import subject_without_cluster
from pipelineserve_operator.render import JsonObject, OperatorSettings, Subject, all_objects
from pipelineserve_operator.render.configuration import control_config_map
from pipelineserve_operator.render.containers import SIDECAR

# Images are this environment, users are this user, and sidecars have the ConfigMap's file alone.
_SETTINGS = OperatorSettings(engine_image="local", controller_image="local", user_id=None)


class LocalObjects:
    """One resource with one replica, and what became of it since the start.

    Args:
        resource: as it was started.

    Raises:
        PipelineServeError: it cannot be rendered.
    """

    def __init__(self, resource: PipelineServe) -> None:
        self._subject = _with_one_replica(subject_without_cluster(resource, None))
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
        self._subject = _with_one_replica(
            replace(self._subject, spec=resource.spec, generation=self._subject.generation + 1)
        )
        return [control_config_map(self._subject, _SETTINGS)]


def with_engine_argument(resource: PipelineServe, argument: str) -> PipelineServe:
    """The resource with one more of `spec.engine.args`."""
    engine = resource.spec.engine
    more = engine.model_copy(update={"args": (*engine.args, argument)})
    return resource.model_copy(update={"spec": resource.spec.model_copy(update={"engine": more})})


def _with_one_replica(subject: Subject) -> Subject:
    return replace(subject, spec=subject.spec.model_copy(update={"replicas": 1}))
