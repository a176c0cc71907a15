"""Which rows of a file a load uses, in which order, and how they are described."""

import random
from dataclasses import dataclass

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve.load.row_files import Row, RowFile


@dataclass(frozen=True, slots=True)
class RowChoice:
    """What to take of a file.

    Attributes:
        first_row, end_row: which rows are used, `end_row` not included; None is the last one.
        is_shuffled: in random order instead of the file's.
        input_scale: factor on the prompt lengths.
        longest_tokens: rows whose prompt, scaled, and output are longer together are left out.
    """

    first_row: int = 0
    end_row: int | None = None
    is_shuffled: bool = False
    input_scale: float = 1.0
    longest_tokens: int | None = None

    def prompt_tokens(self, row_tokens: int) -> int:
        """A row's prompt length, scaled."""
        return max(1, round(row_tokens * self.input_scale))

    def is_too_long(self, row: Row) -> bool:
        """Whether the row is left out; rows of texts, whose length nobody knows, never are."""
        if self.longest_tokens is None or row.prompt_tokens is None:
            return False
        output_tokens = max(1, row.output_tokens or 0)
        return self.prompt_tokens(row.prompt_tokens) + output_tokens > self.longest_tokens


@dataclass(frozen=True, slots=True)
class ChosenRows:
    """The chosen rows in the order of their use; never empty.

    Attributes:
        num_too_long: rows that were left out.
    """

    file: RowFile
    choice: RowChoice
    rows: tuple[Row, ...]
    num_too_long: int

    def times_s(self, rate_scale: float) -> tuple[float, ...]:
        """The rows' own times, the first at 0, `rate_scale` times as fast; the file has times."""
        begin_s = self.rows[0].at_s or 0.0
        return tuple((row.at_s or 0.0) / rate_scale - begin_s / rate_scale for row in self.rows)

    def describe(self, num_used: int) -> str:
        """Which rows are used by so many requests."""
        choice, num_rows = self.choice, len(self.rows)
        end = len(self.file.rows) if choice.end_row is None else choice.end_row
        order = ", shuffled" if choice.is_shuffled else ""
        skipped = f", {self.num_too_long} longer than {choice.longest_tokens} tokens left out"
        again = f", used {num_used / num_rows:.2f} times" if num_used > num_rows else ""
        return (
            f"{min(num_used, num_rows)} of rows {choice.first_row} to "
            f"{min(end, len(self.file.rows)) - 1} of {self.file.name}{order}"
            f"{skipped if self.num_too_long else ''}{again}"
        )


def choose_rows(file: RowFile, choice: RowChoice, chance: random.Random) -> ChosenRows:
    """Apply the choice; chance is drawn from only to shuffle.

    Raises:
        InvalidInputError: no row is left.
    """
    chosen = file.rows[choice.first_row : choice.end_row]
    kept = [row for row in chosen if not choice.is_too_long(row)]
    if not kept:
        text = (
            f"none of the {len(file.rows)} rows of {file.name} is left; take a wider range of "
            "rows or allow longer ones"
        )
        raise InvalidInputError("the choice of rows", [Fault("", text)])
    if choice.is_shuffled:
        chance.shuffle(kept)
    return ChosenRows(file, choice, tuple(kept), len(chosen) - len(kept))
