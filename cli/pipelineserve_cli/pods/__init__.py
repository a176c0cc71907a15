"""A small pod runner: rendered objects become processes of this machine, as a kubelet would do it."""
