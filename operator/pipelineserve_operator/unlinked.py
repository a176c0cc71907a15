"""An operator that controllers do not dial: objectives reach them through the ConfigMap only."""

from pipelineserve.api import PipelineServeSpec
from pipelineserve_operator.findings import ResourceReport
from pipelineserve_operator.link import Offered, Report


class Unlinked:
    """Tells nobody, and hears nothing; a `Link` and `Sidecars`."""

    def offer(self, offered: Offered) -> None:
        """Nobody is there to be told."""

    def withdraw(self, uid: str) -> None:
        """Nobody spoke for it."""

    def reports(self, uid: str) -> tuple[Report, ...]:
        """None."""
        del uid
        return ()

    def report(self, uid: str, spec: PipelineServeSpec) -> ResourceReport | None:
        """None."""
        del uid, spec
        return None
