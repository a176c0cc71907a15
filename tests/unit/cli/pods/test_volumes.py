"""Volumes are folders, and files of ConfigMaps follow their texts."""

from pathlib import Path

from pipelineserve_cli.pods.keeping import KeptTexts
from pipelineserve_cli.pods.specs import pods_of
from pipelineserve_cli.pods.volumes import SCRATCH, HostFolders, Mounts, PodVolumes
from small_pods import a_config_map, a_container, a_set

VOLUMES = [
    {"name": "tmp", "emptyDir": {}},
    {"name": "socket", "emptyDir": {"medium": "Memory"}},
    {"name": "cache", "emptyDir": {"sizeLimit": "1Gi"}},
    {"name": "weights", "persistentVolumeClaim": {"claimName": "mine"}},
    {
        "name": "files",
        "configMap": {"name": "control", "items": [{"key": "a.json", "path": "b.json"}]},
    },
    {"name": "key", "secret": {"secretName": "group", "items": [{"key": "k", "path": "k"}]}},
]
MOUNTS = {
    "tmp": SCRATCH,
    "socket": "/run/socket",
    "cache": "/var/cache/x",
    "weights": "/claim",
    "files": "/etc/files",
    "key": "/etc/files/key",
}


def made(folder: Path, texts: KeptTexts) -> tuple[PodVolumes, Mounts]:
    mounts = [{"name": name, "mountPath": path} for name, path in MOUNTS.items()]
    (pod,) = pods_of([a_set(a_container("one", "", volumeMounts=mounts), volumes=VOLUMES)])
    shared = {"/var/cache/x": folder / "shared"}
    folders = HostFolders(folder / "run", folder / "memory", folder / "claims", shared)
    volumes = PodVolumes(pod, 3, folders, texts)
    volumes.make()
    return volumes, volumes.mounted(pod.containers[0])


def test_every_volume_has_its_folder_which_nobody_else_may_read(tmp_path: Path) -> None:
    texts = KeptTexts()
    texts.add_secret("group", {"k": "secret"})
    _, mounts = made(tmp_path, texts)
    assert mounts.folders["/run/socket"] == tmp_path / "memory" / "3" / "socket"
    assert mounts.folders["/claim"] == tmp_path / "claims" / "mine"
    assert mounts.scratch == tmp_path / "run" / "3" / "tmp"
    for path in ("/run/socket", "/claim", "/etc/files"):
        assert mounts.folders[path].stat().st_mode & 0o777 == 0o700
    key = mounts.folders["/etc/files/key"] / "k"
    assert key.read_text() == "secret"
    assert key.stat().st_mode & 0o777 == 0o600


def test_containers_paths_in_texts_become_the_folders(tmp_path: Path) -> None:
    _, mounts = made(tmp_path, KeptTexts())
    run = tmp_path / "run" / "3"
    for text, expected in {
        "--control=unix:/run/socket/p.sock": f"--control=unix:{tmp_path}/memory/3/socket/p.sock",
        "--cache-dir=/var/cache/x": f"--cache-dir={tmp_path}/shared",
        "/etc/files/b.json,/etc/files/key/k": f"{run}/files/b.json,{run}/key/k",
        "file:///claim/a.gguf": f"file://{tmp_path}/claims/mine/a.gguf",
        "/claims /etc/files.old /x/claim": "/claims /etc/files.old /x/claim",
        "--trace-file=/tmp/mine": "--trace-file=/tmp/mine",
    }.items():
        assert mounts.translated(text) == expected


def test_files_follow_their_config_map_and_others_are_left_alone(tmp_path: Path) -> None:
    texts = KeptTexts()
    texts.apply([a_config_map("control", {"a.json": "1", "unused": "x"})])
    volumes, mounts = made(tmp_path, texts)
    file = mounts.folders["/etc/files"] / "b.json"
    assert file.read_text() == "1"
    first = file.stat().st_ino
    volumes.refresh()
    assert file.stat().st_ino == first, "written although nothing had changed"
    with file.open() as opened:
        texts.apply([a_config_map("control", {"a.json": "22"})])
        volumes.refresh()
        assert opened.read() == "1", "changed under its reader"
    assert file.read_text() == "22"
    assert [path.name for path in file.parent.iterdir()] == ["b.json"]
