"""Settings, log lines, probes and figures of the process."""

import asyncio
import json
import logging
from dataclasses import replace
from typing import Any

import pytest

from pipelineserve import metrics
from pipelineserve.errors import InvalidInputError
from pipelineserve_operator.attend import Refusal
from pipelineserve_operator.logs import JsonFormatter, TextFormatter
from pipelineserve_operator.moments import seconds_of, text_of, text_with_microseconds
from pipelineserve_operator.probes import metric_pages, probe_pages, serving
from pipelineserve_operator.settings import parse_settings
from pipelineserve_operator.telemetry import Gauges, Outcome, Telemetry

IMAGES = ["--engine-image", "e:1", "--controller-image", "c:1"]


def test_namespaces_are_given_by_name_or_all_at_once() -> None:
    assert parse_settings([*IMAGES, "--namespace", "a,b"]).namespaces == ("a", "b")
    everywhere = parse_settings([*IMAGES, "--all-namespaces", "--lease-namespace", "own"])
    assert everywhere.namespaces == ()


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ([], "namespace: expected either this or all_namespaces, got neither"),
        (["--namespace", "a", "--all-namespaces"], "got both"),
        (["--all-namespaces"], "lease_namespace"),
        (["--namespace", "a", "--probe-port", "70000"], "probe_port: expected 0 to 65535"),
        (["--namespace", "a", "--log-format", "xml"], "log_format: expected one of json, text"),
        (["--namespace", "a", "--image-pull-policy", "Now"], "image_pull_policy"),
    ],
)
def test_settings_that_cannot_be_are_named(flags: list[str], named: str) -> None:
    with pytest.raises(InvalidInputError, match=named):
        parse_settings([*IMAGES, *flags])


def test_an_unknown_flag_is_refused() -> None:
    with pytest.raises(SystemExit):
        parse_settings([*IMAGES, "--namespace", "a", "--nonsense", "1"])


def a_record(**given: Any) -> logging.LogRecord:
    record = logging.LogRecord("name", logging.WARNING, "p", 1, "it happened", (), None)
    vars(record).update(given)
    return record


def test_a_log_line_has_its_fields_beside_a_constant_message() -> None:
    line = json.loads(JsonFormatter().format(a_record(object="n/a", pause_s=1.5)))
    assert (line["message"], line["level"]) == ("it happened", "warning")
    assert (line["object"], line["pause_s"]) == ("n/a", 1.5)
    text = TextFormatter("%(levelname)s %(message)s").format(a_record(object="n/a"))
    assert text == "WARNING it happened object=n/a"


def test_moments_are_read_back() -> None:
    assert seconds_of(text_of(1_790_000_000.9)) == 1_790_000_000.0
    assert seconds_of(text_with_microseconds(1_790_000_000.5)) == 1_790_000_000.5


async def fetch(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    reply = await reader.read()
    writer.close()
    return reply


def replies(pages: Any, *requests: bytes) -> list[bytes]:
    async def run() -> list[bytes]:
        async with serving("127.0.0.1", 0, pages) as port:
            return [await fetch(port, request) for request in requests]

    return asyncio.run(run())


def test_alive_is_not_ready() -> None:
    found = replies(
        probe_pages(lambda: False),
        b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /readyz?verbose HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n\r\n",
        b"POST /healthz HTTP/1.1\r\n\r\n",
        b"\r\n\r\n",
    )
    statuses = [reply.split(b" ", 2)[1] for reply in found]
    assert statuses == [b"200", b"503", b"404", b"404", b"404"]
    (ready,) = replies(probe_pages(lambda: True), b"GET /readyz HTTP/1.1\r\n\r\n")
    assert ready.startswith(b"HTTP/1.1 200 OK")


GAUGES = Gauges(
    num_due=lambda: 3,
    num_resources=lambda: 2,
    num_writes=lambda: 7,
    num_requests=lambda: 9,
    num_events_dropped=lambda: 1,
    leads=lambda: True,
    watch_age_s=lambda: 4.5,
    num_sidecars=lambda: 6,
    refusals=lambda: {Refusal.EXPIRED: 4},
)


def test_every_figure_of_the_catalogue_is_served() -> None:
    telemetry = Telemetry(GAUGES, "1.2.3")
    telemetry.looked(Outcome.BLOCKED, 0.02)
    (reply,) = replies(metric_pages(telemetry.registry), b"GET /metrics HTTP/1.1\r\n\r\n")
    text = reply.decode()
    for metric in metrics.OPERATOR_CATALOGUE:
        assert f"# TYPE {metric.name} {metric.kind.value}" in text
    assert 'pipelineserve_operator_reconciles_total{outcome="blocked"} 1.0' in text
    assert "pipelineserve_operator_queue_depth 3.0" in text
    assert "pipelineserve_operator_requests_total 9.0" in text
    assert "pipelineserve_operator_sidecars_connected 6.0" in text
    assert 'pipelineserve_operator_sidecar_refusals_total{cause="expired"} 4.0' in text
    assert 'pipelineserve_operator_build_info{version="1.2.3"} 1.0' in text


def test_an_unknown_age_has_no_series() -> None:
    gauges = replace(GAUGES, leads=lambda: False, watch_age_s=lambda: None)
    (reply,) = replies(
        metric_pages(Telemetry(gauges, "1").registry), b"GET /metrics HTTP/1.1\r\n\r\n"
    )
    assert b"\npipelineserve_operator_watch_age_seconds " not in reply
    assert b"\npipelineserve_operator_leader 0.0" in reply
