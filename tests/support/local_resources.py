"""Manifests for local mode, valid by default."""

from pathlib import Path

from pipelineserve.api import PipelineServe, parse_resource

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart.yaml"


def a_resource(spec: str = "", model: str = "uri: file:///models/tiny") -> PipelineServe:
    """With these further lines of its spec, and one stage on Torch if they do not say."""
    text = f"""
apiVersion: pipelineserve.dev/v1alpha1
kind: PipelineServe
metadata: {{name: tiny}}
spec:
  model: {{{model}}}
  slo: {{ttft: {{milliseconds: 1000}}}}
  {spec or "engine: {type: Torch}"}
"""
    if "parallelism" not in spec:
        text += "  parallelism: {stages: 1}\n"
    return parse_resource(text, "test.yaml")
