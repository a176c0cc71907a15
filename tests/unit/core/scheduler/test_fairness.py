"""What each client was served, and what coming and going does to it."""

from pipelineserve.scheduler import fairness
from pipelineserve.scheduler.fairness import FairnessLedger
from scheduling import make_live_request


def test_an_output_token_counts_as_two_prompt_tokens() -> None:
    ledger = FairnessLedger()
    ledger.join("anna")
    ledger.charge("anna", prompt_tokens=10, output_tokens=3)
    assert ledger.served("anna") == 16.0


def test_a_client_nobody_knows_was_served_nothing() -> None:
    assert FairnessLedger().served("nobody") == 0.0


def test_a_newcomer_starts_level_with_the_least_served_of_those_there() -> None:
    ledger = FairnessLedger()
    ledger.join("anna")
    ledger.join("bert")
    ledger.charge("anna", prompt_tokens=100)
    ledger.charge("bert", prompt_tokens=40)
    ledger.join("carl")
    assert ledger.served("carl") == 40.0


def test_coming_back_after_a_pause_earns_no_credit() -> None:
    ledger = FairnessLedger()
    ledger.join("anna")
    ledger.leave("anna")
    ledger.join("bert")
    ledger.charge("bert", prompt_tokens=500)
    ledger.join("anna")
    assert ledger.served("anna") == 500.0


def test_coming_back_forgives_no_debt() -> None:
    ledger = FairnessLedger()
    ledger.join("anna")
    ledger.charge("anna", prompt_tokens=500)
    ledger.leave("anna")
    ledger.join("bert")
    ledger.join("anna")
    assert ledger.served("anna") == 500.0


def test_coming_to_an_idle_server_earns_no_credit_over_a_client_with_a_past() -> None:
    ledger = FairnessLedger()
    ledger.join("anna")
    ledger.charge("anna", prompt_tokens=100_000)
    ledger.leave("anna")
    ledger.join("bert")
    ledger.join("anna")
    assert ledger.served("bert") == ledger.served("anna") == 100_000.0


def test_a_second_request_of_a_client_that_is_there_lifts_nothing() -> None:
    ledger = FairnessLedger()
    ledger.join("anna")
    ledger.join("bert")
    ledger.charge("bert", prompt_tokens=50)
    ledger.join("anna")
    assert ledger.served("anna") == 0.0


def test_a_client_stays_active_until_its_last_request_leaves() -> None:
    ledger = FairnessLedger()
    ledger.join("anna")
    ledger.join("anna")
    ledger.leave("anna")
    ledger.charge("anna", prompt_tokens=7)
    ledger.join("bert")
    assert ledger.served("bert") == 7.0


def test_clients_that_left_are_forgotten_when_they_grow_many() -> None:
    ledger = FairnessLedger()
    ledger.join("anna")
    ledger.charge("anna", prompt_tokens=5)
    for index in range(3 * fairness._MAX_REMEMBERED_CLIENTS):
        ledger.join(f"passer-by {index}")
        ledger.leave(f"passer-by {index}")
    assert ledger.served("anna") == 5.0
    assert len(ledger._served) <= fairness._MAX_REMEMBERED_CLIENTS + 1


def test_each_output_token_is_charged_to_whose_request_it_is() -> None:
    ledger = FairnessLedger()
    for client_id in ("anna", "bert", "carl"):
        ledger.join(client_id)
    ledger.charge_outputs([make_live_request(client_id=name) for name in ("anna", "bert", "anna")])
    assert [ledger.served(name) for name in ("anna", "bert", "carl")] == [4.0, 2.0, 0.0]


def test_all_output_tokens_are_charged_to_the_only_client_there_is() -> None:
    ledger = FairnessLedger()
    ledger.join("anna")
    ledger.charge_outputs([make_live_request(client_id="anna")] * 3)
    assert ledger.served("anna") == 6.0
