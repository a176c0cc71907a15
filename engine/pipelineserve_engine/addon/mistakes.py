"""A mistake of ours must not end somebody else's server: it ends control, and nothing more."""

import logging
from collections.abc import Callable

from pipelineserve_engine.control.questions import Questions

logger = logging.getLogger(__name__)


class Mistakes:
    """After the first one nothing is followed and nobody is answered any more.

    Args:
        engine_name: for people.
        questions: of controllers, which are refused then.
        on_mistake: told why, once.
    """

    def __init__(
        self, engine_name: str, questions: Questions, on_mistake: Callable[[str], None]
    ) -> None:
        self._engine_name = engine_name
        self._questions = questions
        self._on_mistake = on_mistake
        self.has_any = False

    def guard(self, act: Callable[[], None]) -> None:
        """Do this unless there was a mistake; what it raises is one."""
        if self.has_any:
            return
        try:
            act()
        except Exception as error:  # noqa: BLE001 - the server must go on, whatever it is
            self.note(error)

    def note(self, error: Exception) -> None:
        """This was one."""
        self.has_any = True
        logger.error("the add-on made a mistake and is inactive from now on", exc_info=error)
        self._questions.close()
        self._on_mistake(f"the add-on made a mistake; {self._engine_name}'s log has it")
