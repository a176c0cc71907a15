"""A cluster's API server, as a kubeconfig names it."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import urllib3.exceptions
from kubernetes import client, config

from pipelineserve.api import API_VERSION
from pipelineserve.errors import PipelineServeError

_TIMEOUT_S = 30.0
# The server closes a watch after some minutes by itself; its silence until then is no fault.
_AS_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
_OK, _GONE = 200, 410


class ClusterError(PipelineServeError):
    """A cluster cannot be asked, or refuses to answer; the message says why and what to do."""


class WatchExpiredError(ClusterError):
    """What was to be watched from is too old; list again."""


class Cluster:
    """The resources of one cluster.

    Args:
        kubeconfig: a file; None for `KUBECONFIG` or `~/.kube/config`.
        context: of it; None for the current one.

    Raises:
        ClusterError: there is no such file or context.
    """

    def __init__(self, kubeconfig: str | None, context: str | None) -> None:
        settings = client.Configuration()
        settings.retries = False
        try:
            config.load_kube_config(
                kubeconfig, context, client_configuration=settings, persist_config=False
            )
            contexts, active = config.list_kube_config_contexts(kubeconfig)
        except (config.ConfigException, OSError) as error:
            raise ClusterError(
                f"no cluster to ask: {error}; expected a kubeconfig by --kubeconfig, KUBECONFIG or "
                "~/.kube/config, and a --context that it has"
            ) from error
        used = active if context is None else _named(contexts, context)
        self.namespace: str = used["context"].get("namespace") or "default"
        self._server: str = settings.host
        self._api = client.ApiClient(settings)

    def read(self, path: str, *, as_table: bool) -> dict[str, Any]:
        """An object or a list below the kind's group, or a table of it.

        Raises:
            ClusterError: the server cannot be reached, or does not answer with it.
        """
        reply = self._ask(path, {}, as_table=as_table, timeout_s=_TIMEOUT_S)
        document: dict[str, Any] = json.loads(reply.data)
        return document

    def watch(
        self, path: str, parameters: Mapping[str, str], *, as_table: bool
    ) -> Iterator[dict[str, Any]]:
        """Objects, or tables of one row, as they change, until the server ends the watch.

        Raises:
            WatchExpiredError: the version in the parameters is too old.
            ClusterError: the server cannot be reached, or refuses.
        """
        given = {"watch": "true", **parameters}
        reply = self._ask(path, given, as_table=as_table, timeout_s=None)
        try:
            for line in _lines(reply.stream()):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise _error_of_event(event["object"])
                yield event["object"]
        except urllib3.exceptions.HTTPError:
            return  # broken off; whoever watches on finds out whether the server is gone
        finally:
            reply.close()

    def _ask(
        self, path: str, parameters: Mapping[str, str], *, as_table: bool, timeout_s: float | None
    ) -> Any:
        try:
            method, url, headers, *_ = self._api.param_serialize(
                "GET",
                f"/apis/{API_VERSION}/{path}",
                query_params=list(parameters.items()),
                header_params={"Accept": _AS_TABLE if as_table else "application/json"},
                auth_settings=["BearerToken"],
            )
            answer = self._api.call_api(method, url, headers, _request_timeout=timeout_s)
        except (client.ApiException, urllib3.exceptions.HTTPError) as error:
            # Of the first kind are certificates that do not fit; every answer is given back.
            raise ClusterError(
                f"the API server {self._server} does not answer: {_reason(error)}; check that the "
                "cluster runs, and that the kubeconfig is of this cluster"
            ) from error
        if answer.status != _OK:
            raise self._error_of(answer.status, _message(answer.response.data))
        return answer.response

    def _error_of(self, status: int, message: str) -> ClusterError:
        match status:
            case 401:
                advice = "the kubeconfig's credentials are not accepted; log in again"
            case 403:
                advice = "ask for the right to get, list and watch pipelineserves.pipelineserve.dev"
            case 404 if "could not find the requested resource" in message:
                return ClusterError(
                    f"{self._server} does not know the kind PipelineServe; install the operator, "
                    "or apply crds/pipelineserves.pipelineserve.dev.yaml"
                )
            case 404:
                return ClusterError(message)
            case 410:
                return WatchExpiredError(message)
            case _:
                advice = "the API server says no more than this"
        return ClusterError(f"{self._server} answers {status}: {message}; {advice}")


def _named(contexts: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(context for context in contexts if context["name"] == name)


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from filter(None, whole)


def _error_of_event(status: Mapping[str, Any]) -> ClusterError:
    text = str(status.get("message", status))
    return WatchExpiredError(text) if status.get("code") == _GONE else ClusterError(text)


def _message(body: bytes) -> str:
    """Of a `Status`; the whole text where the answer is something else."""
    text = body.decode(errors="replace")
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip()


def _reason(error: BaseException) -> str:
    """Without the pools and attempts that wrap it."""
    inner = getattr(error, "reason", None)
    return _reason(inner) if isinstance(inner, BaseException) else str(error)
