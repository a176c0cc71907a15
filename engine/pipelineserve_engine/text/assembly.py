"""From one request's token ids to the text that its client sees."""

from collections.abc import Sequence

from pipelineserve_engine.text.detokenize import Detokenizer
from pipelineserve_engine.text.stopping import StopScanner
from pipelineserve_engine.text.tokenizer import TokenDecoder


class TextAssembler:
    """Decoding, then the search for stop strings; see both for what is held back."""

    def __init__(
        self, decoder: TokenDecoder, stop_strings: Sequence[str], context_ids: Sequence[int] = ()
    ) -> None:
        self._detokenizer = Detokenizer(decoder, context_ids)
        self._scanner = StopScanner(stop_strings)

    @property
    def has_stopped(self) -> bool:
        """Whether a stop string ended the text; no further token adds to it."""
        return self._scanner.has_stopped

    def push(self, token_id: int) -> str:
        """Add a token; returns the text to show now, often none."""
        return self._scanner.push(self._detokenizer.push(token_id))

    def flush(self) -> str:
        """End of the tokens; returns what was held back."""
        return self._scanner.push(self._detokenizer.flush()) + self._scanner.flush()
