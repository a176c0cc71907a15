"""Stage 0 hears from every rank whether it obeys, and each report once."""

from pipelineserve_engine.addon.ledger import StageReport
from pipelineserve_engine.sglang.channel import Receiver, Sender


class DictStore:
    """As the store of torch.distributed."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def set(self, key: str, value: str) -> None:
        """As the store's."""
        self.values[key] = value.encode()

    def get(self, key: str) -> bytes:
        """As the store's."""
        return self.values[key]

    def check(self, keys: list[str]) -> bool:
        """As the store's."""
        return all(key in self.values for key in keys)

    def delete_key(self, key: str) -> bool:
        """As the store's."""
        return self.values.pop(key, None) is not None


def a_report(turn: int, stage_index: int = 1) -> StageReport:
    return StageReport(stage_index, turn, 32, 64, 1.5, 2.5)


def test_is_ready_once_every_rank_obeys() -> None:
    store = DictStore()
    receiver = Receiver(store, 2, [1])
    Sender(store, 0, 0, "")
    receiver.turn()
    assert not receiver.is_ready
    Sender(store, 1, 1, "")
    receiver.turn()
    assert receiver.is_ready
    assert not receiver.inactive_reason


def test_a_rank_that_does_not_obey_says_why() -> None:
    store = DictStore()
    Sender(store, 0, 0, "")
    Sender(store, 1, 1, "SGLang 0.4: expected 0.5")
    receiver = Receiver(store, 2, [1])
    receiver.turn()
    assert not receiver.is_ready
    assert receiver.inactive_reason == "rank 1: SGLang 0.4: expected 0.5"


def test_every_report_comes_once_and_in_order() -> None:
    store = DictStore()
    sender, receiver = Sender(store, 1, 1, ""), Receiver(store, 2, [1])
    sender.put([a_report(1), a_report(2)])
    sender.turn()
    sender.put([a_report(3)])
    sender.turn()
    receiver.turn()
    assert receiver.take() == [a_report(1), a_report(2), a_report(3)]
    assert receiver.take() == []
    sender.put([a_report(4)])
    sender.turn()
    receiver.turn()
    assert receiver.take() == [a_report(4)]


def test_what_was_received_is_forgotten_by_the_store() -> None:
    store = DictStore()
    sender, receiver = Sender(store, 1, 1, ""), Receiver(store, 2, [1])
    for turn in range(50):
        sender.put([a_report(turn)])
        sender.turn()
        receiver.turn()
    assert set(store.values) == {"pipelineserve/rank/1"}


def test_ranks_that_do_not_lead_their_stage_report_nothing() -> None:
    store = DictStore()
    sender = Sender(store, 1, None, "")
    sender.put([a_report(1)])
    sender.turn()
    assert set(store.values) == {"pipelineserve/rank/1"}
