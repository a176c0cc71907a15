"""The server that sidecars attend to: who they are, what they are told, what they say."""

from pipelineserve_operator.attend.certificates import (
    SERVER_NAME,
    CertificateUnavailableError,
    KeyPair,
    MountedPair,
    PairSource,
)
from pipelineserve_operator.attend.keys import Keys, PublishedKeys
from pipelineserve_operator.attend.refusals import Refusal
from pipelineserve_operator.attend.roster import Roster
from pipelineserve_operator.attend.server import AddressTakenError, AttendServer, AttendSettings
from pipelineserve_operator.attend.service import StreamBounds

__all__ = [
    "SERVER_NAME",
    "AddressTakenError",
    "AttendServer",
    "AttendSettings",
    "CertificateUnavailableError",
    "KeyPair",
    "Keys",
    "MountedPair",
    "PairSource",
    "PublishedKeys",
    "Refusal",
    "Roster",
    "StreamBounds",
]
