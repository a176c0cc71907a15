"""From a resource to the objects that serve it: pure, without a cluster, a clock or any I/O."""

from pipelineserve_operator.render.configuration import live_sections_text
from pipelineserve_operator.render.labels import Role, leader_selector
from pipelineserve_operator.render.names import Group
from pipelineserve_operator.render.objects import all_objects, group_objects, shared_objects
from pipelineserve_operator.render.revisions import revision_of
from pipelineserve_operator.render.services import endpoint
from pipelineserve_operator.render.settings import OperatorSettings
from pipelineserve_operator.render.subject import JsonObject, Subject, subject_of
from pipelineserve_operator.render.templates import (
    GroupTemplate,
    controller_revision,
    group_template,
    template_from_data,
)

__all__ = [
    "Group",
    "GroupTemplate",
    "JsonObject",
    "OperatorSettings",
    "Role",
    "Subject",
    "all_objects",
    "controller_revision",
    "endpoint",
    "group_objects",
    "group_template",
    "leader_selector",
    "live_sections_text",
    "revision_of",
    "shared_objects",
    "subject_of",
    "template_from_data",
]
