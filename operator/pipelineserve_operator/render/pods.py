"""Pod templates: the same for every group of a resource, so that one is rendered for all."""

from pipelineserve.api import EngineType
from pipelineserve.api.placement import OWN_DOMAIN
from pipelineserve_operator.render import containers, labels, names, sglang_containers
from pipelineserve_operator.render.labels import Role
from pipelineserve_operator.render.model import ModelSource, model_source
from pipelineserve_operator.render.revisions import revision_of
from pipelineserve_operator.render.settings import OperatorSettings
from pipelineserve_operator.render.subject import JsonObject, Subject
from pipelineserve_operator.render.volumes import Volume, distinct

_RESTART_TIME = f"{OWN_DOMAIN}/restart-time"
# After streams had their time: to end stages, flush files and say goodbye.
_ENDING_S = 30


def leader_template(subject: Subject, settings: OperatorSettings) -> JsonObject:
    """The pod that serves: the server, its sidecar, and the first stages of a group of several."""
    source = model_source(subject.spec.model)
    running = [
        *_serving(subject, settings, source, Role.LEADER),
        containers.sidecar(subject, settings),
    ]
    mounted = [
        *_serving_volumes(subject, source, Role.LEADER),
        *containers.sidecar_volumes(subject, settings),
    ]
    return _template(
        subject,
        settings,
        Role.LEADER,
        {
            **_initial(containers.fetch(subject, settings, source)),
            "containers": running,
            "volumes": [volume.volume() for volume in distinct(mounted)],
        },
    )


def worker_template(subject: Subject, settings: OperatorSettings) -> JsonObject:
    """A pod that holds later stages and nothing else."""
    source = model_source(subject.spec.model)
    mounted = _serving_volumes(subject, source, Role.WORKER)
    return _template(
        subject,
        settings,
        Role.WORKER,
        {
            **_initial(containers.fetch(subject, settings, source)),
            "containers": _serving(subject, settings, source, Role.WORKER),
            "volumes": [volume.volume() for volume in distinct(mounted)],
        },
    )


def _serving(
    subject: Subject, settings: OperatorSettings, source: ModelSource, role: Role
) -> list[JsonObject]:
    """The containers that run the model."""
    match subject.spec.engine.type:
        case EngineType.SGLANG:
            return [sglang_containers.launcher(subject, settings, source, role)]
        case EngineType.TORCH if subject.spec.parallelism.pods_per_replica == 1:
            return [containers.engine(subject, settings, source)]
        case EngineType.TORCH:
            hosts = containers.stage_hosts(subject, settings, source, role)
            is_leader = role is Role.LEADER
            return [*([containers.engine(subject, settings, source)] * is_leader), *hosts]


def _serving_volumes(subject: Subject, source: ModelSource, role: Role) -> list[Volume]:
    match subject.spec.engine.type:
        case EngineType.SGLANG:
            return sglang_containers.launcher_volumes(subject, source, role)
        case EngineType.TORCH if role is Role.LEADER:
            return containers.server_volumes(subject, source)
        case EngineType.TORCH:
            return containers.stage_host_volumes(subject, source)


def _template(
    subject: Subject, settings: OperatorSettings, role: Role, contents: JsonObject
) -> JsonObject:
    spec = subject.spec
    has_server = role is Role.LEADER or spec.engine.type is EngineType.SGLANG
    first = containers.ENGINE if has_server else "stage-0"
    restart = {} if spec.restart_time is None else {_RESTART_TIME: spec.restart_time}
    return {
        "metadata": {
            "labels": {
                **spec.pod_metadata.labels,
                **labels.of_member(subject.name, role.value),
                labels.ROLE: role.value,
                labels.REVISION: revision_of(spec),
            },
            "annotations": {
                "kubectl.kubernetes.io/default-container": first,
                **spec.pod_metadata.annotations,
                **restart,
            },
        },
        "spec": {
            "serviceAccountName": names.members(subject.name),
            # The pods have no right that a token of the API could show.
            "automountServiceAccountToken": False,
            # Names of other Services would become variables that programs may take for their own.
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": containers.PRE_STOP_S
            + spec.rollout.drain_seconds
            + _ENDING_S,
            "securityContext": _security(settings.user_id),
            **_placement(subject),
            **contents,
        },
    }


def _initial(fetching: list[JsonObject]) -> JsonObject:
    return {"initContainers": fetching} if fetching else {}


def _security(user_id: int | None) -> JsonObject:
    """One user for all containers: the policy socket can be opened by its owner only."""
    ids = {} if user_id is None else dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), user_id)
    return {
        "runAsNonRoot": True,
        **ids,
        # A claim full of weights is not walked through at every start.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _placement(subject: Subject) -> JsonObject:
    placement = subject.spec.placement
    secrets = [{"name": secret.name} for secret in placement.image_pull_secrets]
    fields = {
        "nodeSelector": dict(placement.node_selector),
        "tolerations": list(placement.tolerations),
        "affinity": placement.affinity,
        "topologySpreadConstraints": list(placement.topology_spread),
        "runtimeClassName": placement.runtime_class_name,
        "priorityClassName": placement.priority_class_name,
        "schedulerName": placement.scheduler_name,
        "imagePullSecrets": secrets,
    }
    return {name: value for name, value in fields.items() if value}
