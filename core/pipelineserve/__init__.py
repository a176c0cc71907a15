"""The shared vocabulary of PipelineServe: resource types, policies, scheduler."""
