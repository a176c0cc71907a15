"""Volumes and where containers find them; the root of every container is read-only."""

from collections.abc import Iterable
from dataclasses import dataclass

from pipelineserve_operator.render import names, places
from pipelineserve_operator.render.quantities import times
from pipelineserve_operator.render.subject import JsonObject, Subject

GROUP_KEY_VOLUME = "group-key"

# Readable by the pod's group and by nobody else; files of Secrets belong to root.
_SECRET_MODE = 0o440
_TOKEN_SECONDS = 3600
_SCRATCH_LIMIT = "1Gi"
_SOCKET_LIMIT = "1Mi"
# Twice what a journal may keep, so that its owner's own bound is the one that is met.
_JOURNAL_LIMIT = "256Mi"


@dataclass(frozen=True, slots=True)
class Volume:
    """One volume of a pod, with the path at which containers mount it."""

    name: str
    path: str
    source: JsonObject
    is_read_only: bool = False

    def volume(self) -> JsonObject:
        """The pod's entry."""
        return {"name": self.name, **self.source}

    def mount(self) -> JsonObject:
        """A container's entry."""
        read_only = {"readOnly": True} if self.is_read_only else {}
        return {"name": self.name, "mountPath": self.path, **read_only}


def distinct(volumes: Iterable[Volume]) -> list[Volume]:
    """Each volume once, in the order in which they first come."""
    return list({volume.name: volume for volume in volumes}.values())


def scratch() -> list[Volume]:
    """What every container may write to."""
    return [
        Volume("tmp", "/tmp", _empty(_SCRATCH_LIMIT)),  # noqa: S108 # a mount of its own
        Volume("home", places.HOME_FOLDER, _empty(_SCRATCH_LIMIT)),
    ]


def shared_memory(subject: Subject) -> Volume:
    """`/dev/shm`; without a size it is bounded by the memory of the pod."""
    size = subject.spec.resources.stage.shared_memory
    num_stages = subject.spec.parallelism.effective_stages_per_pod
    source = _empty(times(size, num_stages) if size else None, medium="Memory")
    return Volume("shared-memory", "/dev/shm", source)  # noqa: S108 # a mount of its own


def control_socket() -> Volume:
    """Where engine and sidecar meet; no other container of the pod mounts it."""
    source = _empty(_SOCKET_LIMIT, medium="Memory")
    return Volume("control-socket", places.SOCKET_FOLDER, source)


def journal() -> Volume:
    """What the sidecar has learned; it outlives the container, not the pod."""
    return Volume("journal", places.JOURNAL_FOLDER, _empty(_JOURNAL_LIMIT))


def control_files(subject: Subject) -> Volume:
    """Objectives and CA bundle, as a folder: a file mounted by itself would never change."""
    keys = (places.OBJECTIVES, places.CA_BUNDLE)
    items = [{"key": key, "path": key} for key in keys]
    source = {"configMap": {"name": names.control(subject.name), "items": items}}
    return Volume("control-files", places.CONTROL_FOLDER, source, is_read_only=True)


def operator_token() -> Volume:
    """A token that is good for the operator only, and says which pod shows it."""
    token = {
        "audience": places.TOKEN_AUDIENCE,
        "expirationSeconds": _TOKEN_SECONDS,
        "path": places.TOKEN,
    }
    source: JsonObject = {"projected": {"sources": [{"serviceAccountToken": token}]}}
    return Volume("operator-token", places.TOKEN_FOLDER, source, is_read_only=True)


def group_key() -> Volume:
    """The group's key; the Secret's name is set for each group."""
    source = _secret("", places.GROUP_KEY, places.GROUP_KEY)
    return Volume(GROUP_KEY_VOLUME, places.GROUP_FOLDER, source, is_read_only=True)


def api_keys(subject: Subject) -> list[Volume]:
    """The keys that clients must send, if any."""
    reference = subject.spec.api.key_secret_ref
    if reference is None:
        return []
    source = _secret(reference.name, reference.key, places.API_KEYS)
    return [Volume("api-keys", places.API_FOLDER, source, is_read_only=True)]


def empty(name: str, path: str, size_limit: str | None) -> Volume:
    """A folder on the node that lives as long as the pod."""
    return Volume(name, path, _empty(size_limit))


def claim(name: str, path: str, claim_name: str, *, is_read_only: bool) -> Volume:
    """A PersistentVolumeClaim; a pod never says that it only reads, its mount does."""
    source = {"persistentVolumeClaim": {"claimName": claim_name}}
    return Volume(name, path, source, is_read_only)


def _secret(secret_name: str, key: str, path: str) -> JsonObject:
    items = [{"key": key, "path": path}]
    return {"secret": {"secretName": secret_name, "items": items, "defaultMode": _SECRET_MODE}}


def _empty(size_limit: str | None, medium: str | None = None) -> JsonObject:
    fields = {"medium": medium, "sizeLimit": size_limit}
    return {"emptyDir": {key: value for key, value in fields.items() if value is not None}}
