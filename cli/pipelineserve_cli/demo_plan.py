"""The demo's load: a few short chats and a few longer prompts, arriving at random."""

from itertools import islice

from pipelineserve.load.arrivals import Poisson, arrival_times_s
from pipelineserve.load.prompts import ChatPrompt
from pipelineserve_cli.load.plan import Bound, LoadPlan, PlannedRequest
from pipelineserve_cli.load.planner import stream_of

# A passage for the longer prompts; about 150 tokens each time that it is repeated.
_PASSAGE = (
    "A pipeline cuts a model into stages, each holding some of its layers. A micro-batch enters "
    "the first stage while the one before it is in the second, so all stages work at once as long "
    "as there are micro-batches enough. A stage that waits has a bubble. Long prompts are cut into "
    "pieces that follow each other through the stages, and the tokens of running answers travel "
    "in the same micro-batches, first in line. The larger the pieces, the sooner a prompt is done; "
    "the smaller they are, the shorter each running answer waits for its next token. "
)
_QUESTIONS = (
    "What is the capital of France?",
    "Name three colours.",
    "Write one sentence about the sea.",
    "What do bees make?",
    "Give me a short greeting.",
    "What is two plus two?",
)


def mixed_plan(seed: int, num_requests: int, rate_per_s: float) -> LoadPlan:
    """Poisson arrivals; every third request has a long prompt."""
    arrivals = Poisson(rate_per_s)
    times_s = islice(arrival_times_s(arrivals, stream_of(seed, "arrivals")), num_requests)
    chance = stream_of(seed, "chats")
    requests = []
    for index, at_s in enumerate(times_s):
        if index % 3 == 2:
            content = _PASSAGE * chance.randint(1, 3) + "Sum this up in one sentence."
            most = 32
        else:
            content, most = chance.choice(_QUESTIONS), 48
        requests.append(_chat(index, at_s, content, chance.randint(16, most)))
    return _plan(requests, seed, str(arrivals))


def one_question(content: str, max_tokens: int) -> LoadPlan:
    """A single chat, sent at once."""
    return _plan([_chat(0, 0.0, content, max_tokens)], 0, "at once")


def _chat(index: int, at_s: float, content: str, max_tokens: int) -> PlannedRequest:
    prompt = ChatPrompt(({"role": "user", "content": content},))
    return PlannedRequest(index, at_s, prompt, max_tokens)


def _plan(requests: list[PlannedRequest], seed: int, arrivals: str) -> LoadPlan:
    return LoadPlan(tuple(requests), seed, arrivals, "chats of the demo", "none", Bound.REQUESTS)
