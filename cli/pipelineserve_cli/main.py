"""`pserve`: the command line of PipelineServe."""

import signal
import sys
from types import FrameType
from typing import NoReturn


def main() -> None:
    """Run the command; errors that a user can mend end with one message and status 1."""
    # Nothing has begun while a command is imported, so the system may end this at once; an
    # exception could be lost in the midst of an import. And a shell that starts this in the
    # background lets it inherit an ignored SIGINT; whoever sends one nevertheless means it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    from pipelineserve_cli.commands import run  # noqa: PLC0415 # not before the lines above

    sys.exit(run(_end_in_order_from_here))


def _end_in_order_from_here() -> None:
    """Both signals end through every block that has something to end itself."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _end_orderly)


def _end_orderly(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
