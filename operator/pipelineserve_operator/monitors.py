"""Which kinds for monitoring the cluster knows: they come and go with another project's release."""

import asyncio
import logging
from collections.abc import Callable

from pipelineserve_operator.cluster import ApiError, Cluster, Kind
from pipelineserve_operator.cluster.kinds import MONITORS

logger = logging.getLogger(__name__)

# One small request for each kind; watching definitions would need a right over the whole cluster.
_LOOK_PERIOD_S = 60.0


class Monitors:
    """Looks now and then.

    Args:
        cluster: to ask.
        period_s: between two looks.
    """

    def __init__(self, cluster: Cluster, period_s: float = _LOOK_PERIOD_S) -> None:
        self._cluster = cluster
        self._period_s = period_s
        self.kinds: tuple[Kind, ...] = ()

    async def look(self) -> bool:
        """Ask; whether it is no longer as it was.

        Raises:
            ApiError: the API server does not answer, or refuses.
        """
        before = self.kinds
        self.kinds = tuple([kind for kind in MONITORS if await self._cluster.knows(kind)])
        return self.kinds != before

    async def run(self, changed: Callable[[], None]) -> None:
        """Look until cancelled; `changed` is called when there are others than before."""
        while True:
            await asyncio.sleep(self._period_s)
            try:
                has_changed = await self.look()
            except ApiError as error:
                logger.warning("kinds for monitoring not looked for", extra={"error": str(error)})
                continue  # what was known holds until the next look
            if has_changed:
                names = [kind.kind for kind in self.kinds]
                logger.info("other kinds for monitoring are known", extra={"kinds": names})
                changed()
