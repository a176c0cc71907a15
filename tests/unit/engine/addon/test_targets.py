"""What an engine does not have as an add-on expects it is found and named before it is hooked."""

from collections.abc import Callable

from pipelineserve_engine.addon.targets import Target, mismatched_targets

FINE = Target("engine.Scheduler.step", ("self", "batch"))


class Scheduler:
    """Stands for an engine's."""

    limit = 3

    def step(self, batch: object) -> None:
        """As it should be."""

    def changed(self, batch: object, mode: str) -> None:
        """Has one more than it should have."""


def resolve(path: str) -> object:
    found: object = getattr(Scheduler, path.rpartition(".")[2])
    return found


def test_nothing_is_wrong_with_what_is_as_expected() -> None:
    assert mismatched_targets([FINE], resolve) == []


def test_says_what_was_found_of_each_target() -> None:
    targets = [
        FINE,
        Target("engine.Scheduler.gone", ("self",)),
        Target("engine.Scheduler.changed", ("self", "batch")),
        Target("engine.Scheduler.limit", ("self",)),
    ]
    assert mismatched_targets(targets, resolve) == [
        "engine.Scheduler.gone is missing",
        "engine.Scheduler.changed: expected (self, batch), got (self, batch, mode)",
        "engine.Scheduler.limit: expected a function, got int",
    ]


def test_a_module_that_is_gone_is_a_mismatch() -> None:
    def nowhere(path: str) -> Callable[..., object]:
        raise ModuleNotFoundError(path)

    assert mismatched_targets([FINE], nowhere) == ["engine.Scheduler.step is missing"]
