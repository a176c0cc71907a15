"""Hypothesis profiles: `HYPOTHESIS_PROFILE=deep` searches for minutes instead of seconds."""

import os

from hypothesis import HealthCheck, settings

# A loaded machine makes an example slow, never wrong.
settings.register_profile("default", max_examples=60, stateful_step_count=40, deadline=None)
settings.register_profile(
    "deep",
    max_examples=3000,
    stateful_step_count=120,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
