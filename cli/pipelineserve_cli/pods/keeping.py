"""ConfigMaps and Secrets of a run, by name."""

from collections.abc import Iterable, Mapping

from pipelineserve_cli.pods.specs import KeptKey, KeptKind
from pipelineserve_operator.render import JsonObject


class KeptTexts:
    """What containers are started with and find as files; it may change while they run."""

    def __init__(self) -> None:
        self._data: dict[tuple[KeptKind, str], Mapping[str, str]] = {}

    def apply(self, objects: Iterable[JsonObject]) -> None:
        """Take the ConfigMaps among these objects in place of those of the same name."""
        for one in objects:
            if one["kind"] == KeptKind.CONFIG_MAP.value:
                self._data[KeptKind.CONFIG_MAP, one["metadata"]["name"]] = dict(one["data"])

    def add_secret(self, name: str, data: Mapping[str, str]) -> None:
        """Take a Secret, which no object that is rendered holds."""
        self._data[KeptKind.SECRET, name] = dict(data)

    def data(self, kind: KeptKind, name: str) -> Mapping[str, str]:
        """Texts by key; none of an object that is not there."""
        return self._data.get((kind, name), {})

    def text(self, key: KeptKey) -> str | None:
        """One of them."""
        return self.data(key.kind, key.name).get(key.key)
