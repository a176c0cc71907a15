"""The head's product with torch's linear and with the weight packed for oneDNN, one thread.

    python -m bench.head [--hidden 576] [--vocabulary 49152]

The least of several rounds taken in turn, in milliseconds, by the rows that sample.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch.nn.functional import linear

from pipelineserve_engine.head import Head

ROWS = (1, 2, 4, 8, 12, 16, 32, 64)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--hidden", type=int, default=576)
    parser.add_argument("--vocabulary", type=int, default=49152)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    weight = torch.randn(options.vocabulary, options.hidden)
    head = Head(weight, is_shared=False)
    products: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "linear": lambda hidden: linear(hidden, weight),
        "packed": head,
    }
    print("rows " + "".join(f"{name:>10}" for name in products))
    with torch.inference_mode():
        for num_rows in ROWS:
            hidden = torch.randn(num_rows, options.hidden)
            least_s = dict.fromkeys(products, float("inf"))
            for _ in range(options.rounds):
                for name, product in products.items():
                    begin_s = time.perf_counter()
                    product(hidden)
                    least_s[name] = min(least_s[name], time.perf_counter() - begin_s)
            print(f"{num_rows:4} " + "".join(f"{1000 * s:10.1f}" for s in least_s.values()))


if __name__ == "__main__":
    main()
