"""`pserve get`: the PipelineServe resources of a cluster, as `kubectl get` shows them."""
