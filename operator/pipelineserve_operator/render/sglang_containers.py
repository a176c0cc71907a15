"""SGLang's container: one in each pod of a group, with all stages of the pod as its processes."""

from pipelineserve_operator.render import (
    compute,
    containers,
    places,
    probes,
    sglang_flags,
    variables,
    volumes,
)
from pipelineserve_operator.render.labels import Role
from pipelineserve_operator.render.model import ModelSource
from pipelineserve_operator.render.settings import OperatorSettings
from pipelineserve_operator.render.subject import JsonObject, Subject
from pipelineserve_operator.render.volumes import Volume


def launcher(
    subject: Subject, settings: OperatorSettings, source: ModelSource, role: Role
) -> JsonObject:
    """Serves in the leader's pod; elsewhere it only runs stages."""
    num_stages = subject.spec.parallelism.effective_stages_per_pod
    return {
        **containers.program(
            containers.ENGINE,
            containers.engine_image(subject, settings),
            "sglang.launch_server",
            sglang_flags.flags(subject, role, source.folder, settings.listen_host),
            settings,
        ),
        "env": [
            *variables.of_member(subject, role),
            *sglang_flags.of_add_on(subject, role),
            *variables.of_user(subject.spec.engine),
        ],
        **_serving(role),
        "resources": compute.of_stages(subject, num_stages),
        **containers.mounted(launcher_volumes(subject, source, role)),
    }


def launcher_volumes(subject: Subject, source: ModelSource, role: Role) -> list[Volume]:
    """What it mounts."""
    control = [volumes.control_socket()] if role is Role.LEADER else []
    return [*volumes.scratch(), volumes.shared_memory(subject), *source.volumes, *control]


def _serving(role: Role) -> JsonObject:
    if role is Role.WORKER:
        return probes.of_sglang_worker()
    return {
        "ports": containers.ports(api=places.API_PORT),
        **probes.of_sglang_server(),
        "lifecycle": {"preStop": {"sleep": {"seconds": containers.PRE_STOP_S}}},
    }
