"""All objects of a resource, in the order in which they are applied."""

from collections.abc import Iterable

from pipelineserve_operator.render import configuration, disruption, monitoring, network, services
from pipelineserve_operator.render.names import Group
from pipelineserve_operator.render.sets import stateful_sets
from pipelineserve_operator.render.settings import OperatorSettings
from pipelineserve_operator.render.subject import JsonObject, Subject
from pipelineserve_operator.render.templates import (
    GroupTemplate,
    controller_revision,
    group_template,
)


def shared_objects(subject: Subject, settings: OperatorSettings) -> list[JsonObject]:
    """What all groups of the resource share; what pods need before they start comes first."""
    return [
        configuration.service_account(subject, settings),
        configuration.control_config_map(subject, settings),
        services.members_service(subject, settings),
        services.api_service(subject, settings),
        network.network_policy(subject, settings),
        *disruption.disruption_budgets(subject, settings),
        *monitoring.monitors(subject, settings),
    ]


def group_objects(
    subject: Subject, template: GroupTemplate, groups: Iterable[Group]
) -> list[JsonObject]:
    """The StatefulSets of these groups, which all have this template."""
    return [one for group in groups for one in stateful_sets(subject, template, group)]


def all_objects(subject: Subject, settings: OperatorSettings) -> list[JsonObject]:
    """What a new resource comes to: every replica in its first epoch.

    Raises:
        InvalidInputError: arguments or variables of the resource take the place of ours.
    """
    template = group_template(subject, settings)
    return [
        *shared_objects(subject, settings),
        controller_revision(subject, settings, template),
        *group_objects(subject, template, map(Group, range(subject.spec.replicas))),
    ]
