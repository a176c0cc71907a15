"""Quantities can be multiplied and compared as they are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.api.texts import QUANTITY
from pipelineserve_operator.render.quantities import smaller, times


@pytest.mark.parametrize(
    ("quantity", "factor", "product"),
    [
        ("500m", 3, "1500m"),
        ("1.5Gi", 2, "3Gi"),
        ("1.25", 2, "2.5"),
        ("0.1", 3, "0.3"),
        ("4", 1, "4"),
        ("1e3", 4, "4e3"),
        ("10", 10, "100"),
    ],
)
def test_a_product_keeps_the_unit(quantity: str, factor: int, product: str) -> None:
    assert times(quantity, factor) == product


@pytest.mark.parametrize(
    ("less", "more"),
    [("999m", "1"), ("1Gi", "1025Mi"), ("1G", "1Gi"), ("1k", "1Ki"), ("2e-3", "3m"), ("1P", "1E")],
)
def test_the_smaller_one_is_found_across_units(less: str, more: str) -> None:
    assert smaller(less, more) == less
    assert smaller(more, less) == less


@given(st.from_regex(QUANTITY.regex, fullmatch=True).filter(lambda text: len(text) <= 32))
def test_whatever_the_resource_takes_as_a_quantity_can_be_worked_with(text: str) -> None:
    quantity = text.strip()
    assert QUANTITY.matches(times(quantity, 64))
    assert smaller(quantity, quantity) == quantity
