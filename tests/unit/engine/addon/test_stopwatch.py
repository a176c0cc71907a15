"""Steps are timed by the clock on a CPU and by the device's own events elsewhere."""

from dataclasses import dataclass, field

from pipelineserve_engine.addon.stopwatch import DeviceStopwatch, HostStopwatch, Span


@dataclass
class FakeDevice:
    """Works off launches after a while; its clock is in milliseconds."""

    now_ms: float = 0.0
    reached_ms: float = 0.0
    events: list["FakeEvent"] = field(default_factory=list)

    def make_event(self) -> "FakeEvent":
        """As torch's."""
        return FakeEvent(self)


@dataclass
class FakeEvent:
    """One of the device's events."""

    device: FakeDevice
    at_ms: float = 0.0

    def record(self) -> None:
        """As torch's."""
        self.at_ms = self.device.now_ms

    def query(self) -> bool:
        """As torch's."""
        return self.at_ms <= self.device.reached_ms

    def elapsed_time(self, later: "FakeEvent") -> float:
        """As torch's."""
        return later.at_ms - self.at_ms


def test_the_host_counts_what_passed_on_the_clock() -> None:
    times = iter([1.0, 1.5, 2.0, 2.25])
    watch = HostStopwatch(lambda: next(times))
    for turn in (7, 8):
        watch.start()
        watch.stop(turn, 32, 64)
    assert watch.take() == [Span(7, 32, 64, 1.0, 1.5), Span(8, 32, 64, 2.0, 2.25)]
    assert watch.take() == []


def test_the_device_tells_of_a_step_once_it_is_done() -> None:
    device = FakeDevice()
    watch = DeviceStopwatch(device.make_event, lambda: 100.0)
    for turn in (1, 2):
        watch.start()
        device.now_ms += 10.0 * turn
        watch.stop(turn, 32, 64)
        device.now_ms += 5.0
    assert watch.take() == []
    device.reached_ms = 10.0
    assert watch.take() == [Span(1, 32, 64, 99.99, 100.0)]
    device.reached_ms = 35.0
    (second,) = watch.take()
    assert (round(second.start_s, 6), round(second.end_s, 6)) == (100.005, 100.025)
