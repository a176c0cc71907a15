"""`pserve get`: once, or again and again; as a table, JSON or YAML."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import click

from pipelineserve.errors import PipelineServeError
from pipelineserve_cli.get.tables import TableText, parse_table
from pipelineserve_cli.render import yaml_text

if TYPE_CHECKING:
    from pipelineserve_cli.get.cluster import Cluster

_PLURAL = "pipelineserves"


class Shape(Enum):
    """How resources are written."""

    TABLE = ""
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"

    @property
    def is_table(self) -> bool:
        """Whether the server makes it of its columns."""
        return self in (Shape.TABLE, Shape.WIDE)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked for.

    Attributes:
        name: None for all.
        namespace: None for all.
    """

    name: str | None
    namespace: str | None

    @property
    def list_path(self) -> str:
        """Of the list in which what is asked for is."""
        return _PLURAL if self.namespace is None else f"namespaces/{self.namespace}/{_PLURAL}"

    @property
    def path(self) -> str:
        """Of what is asked for."""
        return self.list_path if self.name is None else f"{self.list_path}/{self.name}"

    def watch_parameters(self, version: str) -> dict[str, str]:
        """Of a watch that goes on from this version."""
        selected = {} if self.name is None else {"fieldSelector": f"metadata.name={self.name}"}
        return {"resourceVersion": version, **selected}


@click.command()
@click.argument("name", required=False)
@click.option("-n", "--namespace", help="Namespace to look in; the context's if left out.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Look in all of them.")
@click.option("--kubeconfig", help="File that names the cluster; KUBECONFIG, or ~/.kube/config.")
@click.option("--context", help="Context of the kubeconfig; the current one if left out.")
@click.option(
    "-o",
    "--output",
    type=click.Choice([shape.value for shape in Shape if shape.value]),
    help="More columns, or the resources themselves.",
)
@click.option("-w", "--watch", is_flag=True, help="Show what changes until Ctrl-C.")
def get(
    *,
    name: str | None,
    namespace: str | None,
    all_namespaces: bool,
    kubeconfig: str | None,
    context: str | None,
    output: str | None,
    watch: bool,
) -> None:
    """Show the PipelineServe resources of a cluster.

    NAME shows one of them; without it all of the namespace are shown.
    """
    if all_namespaces and (name or namespace):
        raise click.UsageError("--all-namespaces takes neither a name nor --namespace")
    cluster = _cluster(kubeconfig, context)
    space = None if all_namespaces else namespace or cluster.namespace
    viewer = _Viewer(cluster, Question(name, space), Shape(output or ""))
    try:
        viewer.show(watches=watch)
    except KeyboardInterrupt:
        return


def _cluster(kubeconfig: str | None, context: str | None) -> "Cluster":
    try:
        from pipelineserve_cli.get.cluster import Cluster  # noqa: PLC0415 - only with its extra
    except ModuleNotFoundError as error:
        raise PipelineServeError(
            f"pserve get needs {error.name}, which is not installed; "
            "pip install 'pipelineserve[cluster]'"
        ) from error
    return Cluster(kubeconfig, context)


class _Viewer:
    """Writes answers as they come."""

    def __init__(self, cluster: "Cluster", question: Question, shape: Shape) -> None:
        self._cluster = cluster
        self._question = question
        self._shape = shape

    def show(self, *, watches: bool) -> None:
        if self._shape.is_table:
            self._show_table(watches=watches)
        else:
            self._show_documents(watches=watches)

    def _show_table(self, *, watches: bool) -> None:
        table = parse_table(self._read())
        text = TableText(
            table.columns,
            is_wide=self._shape is Shape.WIDE,
            with_namespace=self._question.namespace is None,
        )
        if table.rows or watches:
            _write_lines(text.lines(table.rows))
        else:
            click.echo(self._nothing(), err=True)
        for document in self._changes(table.version) if watches else ():
            _write_lines(text.lines(parse_table(document).rows))

    def _show_documents(self, *, watches: bool) -> None:
        document = self._read()
        click.echo(self._document_text(document))
        version = document["metadata"]["resourceVersion"]
        for changed in self._changes(version) if watches else ():
            click.echo(self._document_text(changed))

    def _changes(self, version: str) -> Iterator[dict[str, Any]]:
        """What changes after this version, for ever: the server ends each watch after a while."""
        from pipelineserve_cli.get.cluster import WatchExpiredError  # noqa: PLC0415 - as above

        while True:
            parameters = self._question.watch_parameters(version)
            try:
                for document in self._cluster.watch(
                    self._question.list_path, parameters, as_table=self._shape.is_table
                ):
                    version = _version_of(document) or version
                    yield document
            except WatchExpiredError:
                document = self._read()
                version = document["metadata"]["resourceVersion"]
                yield document

    def _read(self) -> dict[str, Any]:
        return self._cluster.read(self._question.path, as_table=self._shape.is_table)

    def _nothing(self) -> str:
        space = self._question.namespace
        return f"No resources found{'' if space is None else f' in {space} namespace'}."

    def _document_text(self, document: dict[str, Any]) -> str:
        if self._shape is Shape.JSON:
            return json.dumps(document, indent=4)
        return f"---\n{yaml_text(document)}".rstrip()


def _version_of(document: dict[str, Any]) -> str:
    """Of the object of an event; of a table, that of its row's object."""
    rows = document.get("rows")
    metadata = rows[-1]["object"]["metadata"] if rows else document["metadata"]
    return str(metadata.get("resourceVersion", ""))


def _write_lines(lines: list[str]) -> None:
    for line in lines:
        click.echo(line)
