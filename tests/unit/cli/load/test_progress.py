"""The live line says where the run stands."""

from load_builders import record_of
from pipelineserve_cli.load.progress import describe
from pipelineserve_cli.load.run import LiveCounts


def test_counts_add_up_and_latencies_appear_with_the_first_answer() -> None:
    counts = LiveCounts(num_planned=9, num_sent=7, num_done=4, num_failed=1, recent=())
    assert describe(counts) == "7/9 sent  2 running  4 done  1 failed"
    with_answers = LiveCounts(9, 7, 4, 1, recent=(record_of((1.0, 1.5)), record_of((2.0,))))
    assert describe(with_answers).endswith("recent TTFT 1500 ms  recent TPOT 500 ms")
