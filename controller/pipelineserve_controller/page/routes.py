"""The page's files over HTTP, locked down: nothing from elsewhere, no script or style inline."""

import mimetypes
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, HTTPException
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse, JSONResponse, Response

from pipelineserve.policy.reason_texts import text_of
from pipelineserve.policy.reasons import Reason

_FOLDER = Path(__file__).parent
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    # A new sidecar brings its own page, which must not meet an older one's modules.
    "Cache-Control": "no-store",
}


def page_router() -> APIRouter:
    """`/` and what the document asks for under `/page/`; all of it public and read-only."""
    files = _files()
    router = APIRouter()

    @router.get("/", include_in_schema=False)
    def document() -> FileResponse:
        return FileResponse(_FOLDER / "index.html", headers=_HEADERS)

    @router.get("/page/reasons.json", include_in_schema=False)
    def reasons() -> JSONResponse:
        texts = {reason.value: text_of(reason) for reason in Reason}
        return JSONResponse(texts, headers=_HEADERS)

    @router.get("/page/{name}", include_in_schema=False)
    def file(name: Annotated[str, PathParameter(max_length=100)]) -> Response:
        if name not in files:
            raise HTTPException(404, f"the page has no file {name}")
        media_type = mimetypes.guess_type(name)[0]
        return FileResponse(files[name], headers=_HEADERS, media_type=media_type)

    return router


def _files() -> Mapping[str, Path]:
    """By name: a request can only choose among what is here, whatever path it spells."""
    kinds = {".css", ".js", ".svg"}
    return {path.name: path for path in _FOLDER.iterdir() if path.suffix in kinds}
