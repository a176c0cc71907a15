"""The patterns of texts in the resource, each beside its meaning in words."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextPattern:
    """A regular expression for a whole text, and the same in words for a fault."""

    regex: str
    meaning: str

    def matches(self, text: str) -> bool:
        """Whether the whole text is of this pattern."""
        return re.fullmatch(self.regex, text) is not None


DNS_LABEL = TextPattern(
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
    "a DNS label: lower-case letters, digits and '-', with a letter or digit at both ends",
)
OBJECT_NAME = TextPattern(
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    "the name of a Kubernetes object: lower-case letters, digits, '-' and '.'",
)
DATA_KEY = TextPattern(
    r"^[-._a-zA-Z0-9]+$", "a key of a Secret's data: letters, digits, '-', '_' and '.'"
)
QUALIFIED_NAME = TextPattern(
    r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
    "a name such as app or example.com/app: letters, digits, '-', '_' and '.'",
)
LABEL_VALUE = TextPattern(
    r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$",
    "a label's value: letters, digits, '-', '_' and '.', with a letter or digit at both ends",
)
QUANTITY = TextPattern(
    r"^[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?$",
    'a Kubernetes quantity such as 4, "500m" or 16Gi',
)
SERVED_NAME = TextPattern(
    r"^[A-Za-z0-9][-A-Za-z0-9._:/]*$",
    "a model's name: letters, digits, '-', '.', '_', ':' and '/', with a letter or digit first",
)
REVISION = TextPattern(
    r"^[A-Za-z0-9][-A-Za-z0-9._/+]*$",
    "a commit, branch, tag or version: letters, digits, '-', '.', '_', '/' and '+'",
)
VARIABLE_NAME = TextPattern(
    r"^[-._a-zA-Z][-._a-zA-Z0-9]*$",
    "the name of an environment variable: letters, digits, '_', '-' and '.', no digit first",
)
IMAGE = TextPattern(
    r"^[a-z0-9][-A-Za-z0-9._/:@]*$",
    "an image reference such as example.com/team/engine:1.2 or one with @sha256:…",
)
INTERVAL = TextPattern(
    r"^[1-9][0-9]{0,4}(ms|s|m)$", "an interval in Prometheus' spelling such as 15s or 1m"
)
RFC_3339 = TextPattern(
    r"^[0-9]{4}(-[0-9]{2}){2}[Tt][0-9]{2}(:[0-9]{2}){2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})$",
    "a time of RFC 3339 in quotes such as 2026-12-01T00:00:00Z",
)

PATTERNS: tuple[TextPattern, ...] = (
    DNS_LABEL,
    OBJECT_NAME,
    DATA_KEY,
    QUALIFIED_NAME,
    LABEL_VALUE,
    QUANTITY,
    SERVED_NAME,
    REVISION,
    VARIABLE_NAME,
    IMAGE,
    INTERVAL,
    RFC_3339,
)
