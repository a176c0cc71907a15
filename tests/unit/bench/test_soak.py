"""The verdict of a soak run can be read by people and programs."""

import json
from collections import Counter

from bench.soak import Sample, SoakResult, as_json, table


def test_the_result_as_json_has_every_count_and_sample() -> None:
    result = SoakResult(ends=Counter({"stop": 3}), samples=[Sample(1.0, (5, 6), 0.5, 1, 2)])
    document = json.loads(as_json(result))
    assert document["ends"] == {"stop": 3}
    assert document["samples"][0]["rss_bytes"] == [5, 6]
    assert document["violations"] == []


def test_the_table_ends_with_the_verdict() -> None:
    assert table(SoakResult()).endswith("all is well")
    assert table(SoakResult(violations=["a request is lost"])).endswith("a request is lost")
