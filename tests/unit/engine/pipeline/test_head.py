"""The head gives the same logits whether its weight is packed or not."""

import pytest
import torch
from torch.nn.functional import linear

from pipelineserve_engine import head as head_module
from pipelineserve_engine.head import Head


@pytest.mark.parametrize("num_rows", [1, 2, 8, 33])
def test_a_packed_head_gives_the_logits_of_a_plain_one(num_rows: int) -> None:
    torch.manual_seed(1)
    weight, hidden = torch.randn(500, 96), torch.randn(num_rows, 96)
    torch.testing.assert_close(
        Head(weight, is_shared=False)(hidden), linear(hidden, weight), rtol=1e-4, atol=1e-4
    )


def test_a_head_that_shares_its_weight_has_no_memory_of_its_own_and_is_not_packed() -> None:
    weight = torch.randn(50, 8)
    head = Head(weight, is_shared=True)
    weight.zero_()
    assert head.num_bytes == 0
    assert not head(torch.ones(1, 8)).any()


def test_other_types_than_float32_are_left_plain() -> None:
    weight, hidden = torch.randn(50, 8).bfloat16(), torch.randn(3, 8).bfloat16()
    assert torch.equal(Head(weight, is_shared=False)(hidden), linear(hidden, weight))


class _OtherOperators:
    """Operators that are not what is expected."""

    @staticmethod
    def _reorder_linear_weight(weight: torch.Tensor) -> torch.Tensor:
        return weight

    @staticmethod
    def _linear_pointwise(hidden: torch.Tensor, weight: torch.Tensor, *_: object) -> torch.Tensor:
        return linear(hidden, weight) + 1.0


@pytest.mark.parametrize("operators", [_OtherOperators, object])
def test_operators_that_are_missing_or_wrong_leave_the_head_plain(
    operators: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_module, "OPERATORS", operators)
    weight, hidden = torch.randn(50, 8), torch.randn(3, 8)
    assert torch.equal(Head(weight, is_shared=False)(hidden), linear(hidden, weight))
