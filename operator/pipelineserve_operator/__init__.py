"""The Kubernetes operator: from a PipelineServe to the objects that serve it."""
