"""The page's files over HTTP: complete, locked down, nothing beyond them."""

import re

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from tools.sources import ROOT

from pipelineserve.policy.reason_texts import text_of
from pipelineserve.policy.reasons import Reason
from pipelineserve_controller.page.routes import page_router

FOLDER = ROOT / "controller" / "pipelineserve_controller" / "page"
PATHS = ["/", "/page/page.css", "/page/page.js", "/page/icon.svg", "/page/reasons.json"]


@pytest.fixture
def client() -> TestClient:
    app = FastAPI()
    app.include_router(page_router())
    return TestClient(app)


@pytest.mark.parametrize("path", PATHS)
def test_every_file_comes_with_a_policy_that_allows_only_this_server(
    client: TestClient, path: str
) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


def test_whatever_the_document_and_its_modules_name_is_there(client: TestClient) -> None:
    texts = [path.read_text() for path in FOLDER.iterdir() if path.suffix in {".html", ".js"}]
    named = {name for text in texts for name in re.findall(r'"(?:page|\.)/([\w.]+)"', text)}
    assert {"page.js", "page.css", "icon.svg", "stream.js", "reasons.json"} <= named
    assert {name: client.get(f"/page/{name}").status_code for name in named} == dict.fromkeys(
        named, 200
    )


def test_the_document_holds_no_script_and_no_style_of_its_own() -> None:
    document = (FOLDER / "index.html").read_text()
    assert re.findall(r"<script(?![^>]* src=)|<style| style=| on\w+=", document) == []


def test_nothing_comes_from_another_server() -> None:
    texts = {path.name: path.read_text() for path in FOLDER.iterdir() if path.is_file()}
    namespace = "http://www.w3.org/2000/svg"
    assert [name for name, text in texts.items() if "://" in text.replace(namespace, "")] == []


@pytest.mark.parametrize(
    "name", ["routes.py", "..%2fstate.py", "..%2f..%2fstate.py", "no.js", "%00"]
)
def test_what_is_no_file_of_the_page_is_not_served(client: TestClient, name: str) -> None:
    assert client.get(f"/page/{name}").status_code == 404


def test_every_reason_has_words_for_the_page(client: TestClient) -> None:
    texts = client.get("/page/reasons.json").json()
    assert texts == {reason.value: text_of(reason) for reason in Reason}
