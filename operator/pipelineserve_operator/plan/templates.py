"""The templates of a resource's groups: those that are kept, and today's, made if need be."""

from collections.abc import Mapping
from dataclasses import dataclass

from pipelineserve.errors import InvalidInputError
from pipelineserve_operator.cluster import Kind
from pipelineserve_operator.observed import View
from pipelineserve_operator.render import (
    GroupTemplate,
    JsonObject,
    OperatorSettings,
    Subject,
    controller_revision,
    group_template,
    revision_of,
    template_from_data,
)


@dataclass(frozen=True, slots=True)
class Templates:
    """Templates by revision, with the objects that keep them.

    Attributes:
        revision: of the rolling fields of today; None if there is no template for them.
        refusal: why there is none.
        unreadable: kept templates that this version cannot read, by the object's name.
    """

    by_revision: Mapping[str, GroupTemplate]
    documents: Mapping[str, JsonObject]
    revision: str | None
    refusal: InvalidInputError | None = None
    unreadable: tuple[JsonObject, ...] = ()


def templates_of(view: View, subject: Subject, settings: OperatorSettings) -> Templates:
    """A template that is kept is taken as it is, whichever version of the operator made it."""
    by_revision: dict[str, GroupTemplate] = {}
    documents: dict[str, JsonObject] = {}
    unreadable: list[JsonObject] = []
    for live in view.children.get(Kind.CONTROLLER_REVISION, ()):
        template = _kept(live)
        if template is None:
            unreadable.append(live)
            continue
        by_revision[template.revision] = template
        documents[template.revision] = _document(subject, settings, template, live)
    revision = revision_of(subject.spec)
    if revision not in by_revision:
        try:
            template = group_template(subject, settings)
        except InvalidInputError as error:
            return Templates(by_revision, documents, None, error, tuple(unreadable))
        by_revision[revision] = template
        documents[revision] = controller_revision(subject, settings, template)
    return Templates(by_revision, documents, revision, unreadable=tuple(unreadable))


def _document(
    subject: Subject, settings: OperatorSettings, template: GroupTemplate, live: JsonObject
) -> JsonObject:
    """As it is: its number is that of the edit that it came with."""
    wanted = controller_revision(subject, settings, template)
    return {**wanted, "revision": live["revision"], "data": live["data"]}


def _kept(live: JsonObject) -> GroupTemplate | None:
    """The template in a ControllerRevision; None if this version cannot read it."""
    try:
        return template_from_data(live["data"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return None  # it goes, and is made anew if it is needed
