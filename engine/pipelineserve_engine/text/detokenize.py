"""Token ids to text as they come, at a cost per token that does not grow with the output.

One token's text depends on its neighbours: a character may be spread over several tokens, and some
tokenizers drop a space at the very start. So a short window of the latest tokens is decoded again
for each new one, and only what lies beyond the text already given out is new.

While a character is incomplete, decoders write U+FFFD in its place; those at the end of the window
are therefore held back. Decoders with byte fallback do so for a whole run of byte tokens until its
last character is complete, hence "all at the end" and not one. If such a run ends in invalid bytes,
a decoder that sees it whole spoils its valid characters too; the stream keeps those already shown.
"""

from collections.abc import Sequence

from pipelineserve_engine.text.tokenizer import TokenDecoder

REPLACEMENT = "\ufffd"
# Enough tokens that UTF-8, whose characters have at most 4 bytes, is back in step within them.
KEEP_TOKENS = 8
SHORTEN_AT_TOKENS = 16
# A window this long that still ends in U+FFFD holds bytes that never become a character.
RELEASE_AT_TOKENS = 24
LONGEST_INCOMPLETE_BYTES = 3


class Detokenizer:
    """The text of one growing sequence of token ids.

    The pieces that `push` and, at the end, `flush` return, joined, are the decoded whole.
    `context_ids` are the tokens before the sequence, of which it is the continuation: with them, a
    first word keeps its leading space.
    """

    def __init__(self, decoder: TokenDecoder, context_ids: Sequence[int] = ()) -> None:
        self._decoder = decoder
        nearest = context_ids[-4 * KEEP_TOKENS :]
        self._window = [i for i in nearest if decoder.is_shown(i)][-KEEP_TOKENS:]
        self._text = decoder.decode(self._window) if self._window else ""
        self._num_given = len(self._text.rstrip(REPLACEMENT))

    def push(self, token_id: int) -> str:
        """Add a token; returns the text that is now certain, often none."""
        if not self._decoder.is_shown(token_id):
            return ""
        self._window.append(token_id)
        self._text = self._decoder.decode(self._window)
        piece = self._give(self._num_certain())
        if len(self._window) >= self._longest_window():
            self._shorten()
        return piece

    def flush(self) -> str:
        """End of the sequence; returns what was held back."""
        return self._give(len(self._text))

    def _num_certain(self) -> int:
        if len(self._window) >= RELEASE_AT_TOKENS:
            return len(self._text) - LONGEST_INCOMPLETE_BYTES
        return len(self._text.rstrip(REPLACEMENT))

    def _longest_window(self) -> int:
        # Between whole characters if possible: within one, a run of byte tokens is all U+FFFD and
        # does not show where its characters begin.
        is_between_characters = self._num_given == len(self._text)
        return SHORTEN_AT_TOKENS if is_between_characters else RELEASE_AT_TOKENS

    def _give(self, end: int) -> str:
        start, self._num_given = self._num_given, max(self._num_given, end)
        return self._text[start : self._num_given]

    def _shorten(self) -> None:
        """Forget the oldest tokens, at a place where the rest decodes as it did among them."""
        num_held = len(self._text) - self._num_given
        for num_kept in range(KEEP_TOKENS, len(self._window)):
            window = self._window[-num_kept:]
            text = self._decoder.decode(window)
            if len(text) > num_held and _is_tail(text, self._text):
                self._window, self._text = window, text
                self._num_given = len(text) - num_held
                return


def _is_tail(text: str, whole: str) -> bool:
    """Whether `text` ends `whole`, a character cut at its start aside."""
    uncut = text.lstrip(REPLACEMENT)
    return whole.endswith(text) or (uncut != "" and whole.endswith(uncut))
