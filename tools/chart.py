"""The chart's template of the resource's definition: the generated one, and when to install it."""

from tools.crd import crd_text

PATH = "charts/pipelineserve/templates/crds/pipelineserves.yaml"

_START = "metadata:\n  name: "
# Helm would take both for the beginning and end of an action of its own.
_ACTION_MARKS = ("{{", "}}")
_METADATA = """metadata:
  {{- if .Values.crds.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
  labels:
    {{- include "pipelineserve.labels" (dict "root" . "component" "crds") | nindent 4 }}
  name: """


def crd_template() -> str:
    """The template as text.

    Raises:
        ValueError: the definition has a text that Helm would run.
    """
    definition = crd_text()
    if found := [mark for mark in _ACTION_MARKS if mark in definition]:
        raise ValueError(f"Helm would take {found[0]} in the definition for its own; reword it")
    header, _, rest = definition.partition(_START)
    return f"{{{{- if .Values.crds.enabled }}}}\n{header}{_METADATA}{rest}{{{{- end }}}}\n"
