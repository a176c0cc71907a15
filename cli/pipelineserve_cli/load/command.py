"""`pserve load`: the options, and what follows from them."""

import json
import os
import sys
from typing import Any

import click
import httpx
from rich.console import Console

from pipelineserve.errors import EngineUnavailableError, Fault, InvalidInputError
from pipelineserve.load.row_files import read_rows
from pipelineserve.load.targets import Target, Targets
from pipelineserve_cli.load.bodies import (
    BodySettings,
    default_endpoint,
    require_endpoint,
)
from pipelineserve_cli.load.client import ClientSettings, find_models
from pipelineserve_cli.load.figures import targets_of
from pipelineserve_cli.load.options import LoadOptions, load_options
from pipelineserve_cli.load.plan import LoadPlan
from pipelineserve_cli.load.plan_export import plan_as_json
from pipelineserve_cli.load.plan_settings import plan_settings
from pipelineserve_cli.load.planner import make_plan
from pipelineserve_cli.load.report import LoadReport, request_as_json
from pipelineserve_cli.load.run import RunResult
from pipelineserve_cli.load.session import LoadSession
from pipelineserve_cli.load.tables import plan_table, print_on, report_tables
from pipelineserve_cli.manifests import read_resource

_INTERRUPTED_STATUS = 130


@click.command()
@load_options
def load(**given: Any) -> None:
    """Send a server requests at their own times and report its latencies.

    Requests are sent when they are due, whatever became of the others (open loop). Every run ends
    by itself: after 100 requests or the file's last row, if nothing else is asked for. Ctrl-C ends
    it earlier, with a report of what was done.
    """
    options = LoadOptions(**given)
    _require_place_for_output(options)
    file = None if options.dataset is None else read_rows(options.dataset)
    plan = make_plan(plan_settings(options, file), file)
    if options.dry_run:
        _print_plan(plan, as_json=options.as_json)
        return
    session = _session(options, plan)
    report, result = session.execute(Console(stderr=True))
    _write(options, report, result)
    _require_success(report)


def _require_place_for_output(options: LoadOptions) -> None:
    """Better now than after the run, whose records would be lost."""
    if options.output is not None and not options.output.parent.is_dir():
        text = f'the folder of "{options.output}" does not exist; make it first'
        raise InvalidInputError("the load", [Fault("--output", text)])


def _session(options: LoadOptions, plan: LoadPlan) -> LoadSession:
    endpoint = options.endpoint or default_endpoint(plan)
    require_endpoint(plan, endpoint)
    targets = _targets(options)
    url, api_key = _base_url(options.url), _api_key(options)
    model = _model(options.model, url, find_models(url, api_key))
    client = ClientSettings(
        url, endpoint.path, api_key, options.timeout, options.max_connections, options.retries
    )
    bodies = BodySettings(
        model, endpoint, _ignores_eos(options, plan), options.vocabulary, options.temperature
    )
    return LoadSession(plan, bodies, client, targets, options.drain)


def _ignores_eos(options: LoadOptions, plan: LoadPlan) -> bool:
    """Unless said otherwise: where prompts mean nothing, so that the ends of answers do not."""
    if options.ignore_eos is not None:
        return options.ignore_eos
    return all(request.prompt_tokens is not None for request in plan.requests)


def _targets(options: LoadOptions) -> Targets:
    given = (options.ttft_ms, options.tpot_ms, options.e2e_ms)
    ttft, tpot, e2e = (
        None if value is None else Target(options.percentile, value / 1000) for value in given
    )
    if options.filename is None:
        return Targets(ttft, tpot, e2e)
    resource = read_resource(options.filename)
    manifest = targets_of(resource.spec.slo)
    return Targets(ttft or manifest.ttft, tpot or manifest.tpot, e2e)


def _base_url(text: str) -> str:
    """Without the path that endpoints begin with; never with a password, which would be shown."""
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in {"http", "https"} or not url.host or url.userinfo or url.query:
        shown = "a URL with a password" if url.userinfo else f'"{text}"'
        expected = "expected an address like http://127.0.0.1:8000, a key goes into OPENAI_API_KEY"
        raise InvalidInputError("the load", [Fault("--url", f"got {shown}, {expected}")])
    return str(url).rstrip("/").removesuffix("/v1")


def _api_key(options: LoadOptions) -> str | None:
    if options.api_key_file is not None:
        source, key = "--api-key-file", options.api_key_file.read_text(encoding="utf-8").strip()
    else:
        source, key = "OPENAI_API_KEY", os.environ.get("OPENAI_API_KEY", "")
    if not key.isascii() or not key.isprintable():
        text = "holds characters that no HTTP header can carry; expected one line with the key"
        raise InvalidInputError("the load", [Fault(source, text)])
    return key or None


def _model(given: str | None, url: str, offered: tuple[str, ...]) -> str:
    if given is not None:
        return given
    if len(offered) != 1:
        names = ", ".join(offered) or "none"
        text = f"needed, since {url} lists {len(offered)} models: {names}; name the one to load"
        raise InvalidInputError("the load", [Fault("--model", text)])
    return offered[0]


def _print_plan(plan: LoadPlan, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(plan_as_json(plan), indent=2) + "\n")
    else:
        print_on(Console(), plan_table(plan))


def _write(options: LoadOptions, report: LoadReport, result: RunResult) -> None:
    if options.output is not None:
        requests = [request_as_json(record) for record in result.records]
        content = {**report.as_json(), "requests": requests}
        options.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    if options.as_json:
        sys.stdout.write(json.dumps(report.as_json(), indent=2) + "\n")
    else:
        print_on(Console(), report_tables(report))


def _require_success(report: LoadReport) -> None:
    if report.is_interrupted:
        sys.exit(_INTERRUPTED_STATUS)
    if report.whole_run.num_finished == 0:
        raise EngineUnavailableError(
            f"none of {report.whole_run.num_sent} requests was answered; the report's notes say why"
        )
