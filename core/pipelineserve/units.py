"""Units that must not be mixed up.

Time inside the product is in seconds of a monotonic clock that the caller passes in; milliseconds
exist only in the custom resource and on the screen.
"""

from typing import NewType

Seconds = NewType("Seconds", float)
Tokens = NewType("Tokens", int)
Blocks = NewType("Blocks", int)
