"""The containers of a pod, each with nothing that the "restricted" pod security refuses."""

from collections.abc import Sequence

from pipelineserve.api import EngineType
from pipelineserve_operator.render import (
    compute,
    engine_flags,
    model,
    places,
    probes,
    sidecar_flags,
    variables,
    volumes,
)
from pipelineserve_operator.render.labels import Role
from pipelineserve_operator.render.model import ModelSource
from pipelineserve_operator.render.settings import OperatorSettings
from pipelineserve_operator.render.subject import JsonObject, Subject
from pipelineserve_operator.render.volumes import Volume, distinct

ENGINE = "engine"
SIDECAR = "controller"

# Between a pod's leaving the Service and the signal to end, so that no request meets a closed port.
PRE_STOP_S = 5


def engine(subject: Subject, settings: OperatorSettings, source: ModelSource) -> JsonObject:
    """The server, with all stages as its processes unless the group has several pods."""
    parallelism = subject.spec.parallelism
    is_alone = parallelism.pods_per_replica == 1
    return {
        **program(
            ENGINE,
            engine_image(subject, settings),
            "pipelineserve_engine.server",
            engine_flags.server_flags(subject, source.folder, settings.listen_host),
            settings,
        ),
        "env": [
            *variables.of_member(subject, Role.LEADER),
            *variables.of_server(subject),
            *variables.of_user(subject.spec.engine),
        ],
        "ports": ports(api=places.API_PORT, **({} if is_alone else {"group": places.GROUP_PORT})),
        "resources": compute.of_stages(subject, parallelism.stages)
        if is_alone
        else compute.of_server(subject),
        **mounted(server_volumes(subject, source)),
        **probes.of_server(),
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_S}}},
    }


def stage_hosts(
    subject: Subject, settings: OperatorSettings, source: ModelSource, role: Role
) -> list[JsonObject]:
    """One container for each stage of one pod of a group that has several."""
    num_stages = subject.spec.parallelism.effective_stages_per_pod
    return [
        _stage_host(subject, settings, source, role, index_in_pod)
        for index_in_pod in range(num_stages)
    ]


def sidecar(subject: Subject, settings: OperatorSettings) -> JsonObject:
    """The controller under its supervisor. It has no probe: it must never gate the engine."""
    return {
        **program(
            SIDECAR,
            settings.controller_image,
            "pipelineserve_controller.supervisor",
            sidecar_flags.flags(subject, settings),
            settings,
        ),
        "env": variables.of_sidecar(),
        "ports": ports(page=places.PAGE_PORT),
        "resources": compute.of_controller(subject.spec.resources),
        **mounted(sidecar_volumes(subject, settings)),
    }


def fetch(subject: Subject, settings: OperatorSettings, source: ModelSource) -> list[JsonObject]:
    """The init container that fetches the model, if it must be fetched."""
    if source.fetched_uri is None:
        return []
    container = {
        **program(
            "model",
            engine_image(subject, settings),
            "pipelineserve_engine.models",
            model.fetch_arguments(subject.spec.model, source.fetched_uri),
            settings,
        ),
        "env": [
            *variables.of_every_container(),
            *model.fetch_variables(subject.spec.model),
            *variables.of_user(subject.spec.engine),
        ],
        "resources": compute.of_fetch(subject),
        **mounted([*volumes.scratch(), *source.volumes]),
    }
    return [container]


def server_volumes(subject: Subject, source: ModelSource) -> list[Volume]:
    """What the server mounts."""
    several = [volumes.group_key()] if subject.spec.parallelism.pods_per_replica > 1 else []
    return [
        *_stage_volumes(subject, source),
        volumes.control_socket(),
        *several,
        *volumes.api_keys(subject),
    ]


def stage_host_volumes(subject: Subject, source: ModelSource) -> list[Volume]:
    """What a stage host mounts."""
    return [*_stage_volumes(subject, source), volumes.group_key()]


def sidecar_volumes(subject: Subject, settings: OperatorSettings) -> list[Volume]:
    """What the sidecar mounts."""
    attending = [volumes.operator_token()] if settings.operator_address else []
    return [
        *volumes.scratch(),
        volumes.control_socket(),
        volumes.journal(),
        volumes.control_files(subject),
        *attending,
    ]


def _stage_host(
    subject: Subject,
    settings: OperatorSettings,
    source: ModelSource,
    role: Role,
    index_in_pod: int,
) -> JsonObject:
    return {
        **program(
            f"stage-{index_in_pod}",
            engine_image(subject, settings),
            "pipelineserve_engine.stage_host",
            engine_flags.stage_host_flags(subject.spec, role, index_in_pod, source.folder),
            settings,
        ),
        "env": [
            *variables.of_member(subject, role),
            *variables.of_user(subject.spec.engine),
        ],
        "resources": compute.of_stages(subject, 1),
        **mounted(stage_host_volumes(subject, source)),
        **(probes.of_worker() if role is Role.WORKER and index_in_pod == 0 else {}),
    }


def _stage_volumes(subject: Subject, source: ModelSource) -> list[Volume]:
    return [*volumes.scratch(), volumes.shared_memory(subject), *source.volumes]


def program(
    name: str, image: str, module: str, arguments: Sequence[str], settings: OperatorSettings
) -> JsonObject:
    """What every container has; `module` is run by the image's own Python."""
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": settings.image_pull_policy,
        "command": ["python3", "-m", module],
        "args": list(arguments),
        # The last lines of a program that has failed say why; they then stand in the pod's status.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }


def engine_image(subject: Subject, settings: OperatorSettings) -> str:
    """The resource's own, or the operator's for this kind of engine."""
    engine = subject.spec.engine
    match engine.type:
        case EngineType.TORCH:
            return engine.image or settings.engine_image
        case EngineType.SGLANG:
            return engine.image or settings.sglang_image


def mounted(mounting: Sequence[Volume]) -> JsonObject:
    """Where a container finds its volumes."""
    return {"volumeMounts": [volume.mount() for volume in distinct(mounting)]}


def ports(**numbers: int) -> list[JsonObject]:
    """A container's ports by name."""
    return [
        {"name": name, "containerPort": port, "protocol": "TCP"} for name, port in numbers.items()
    ]
