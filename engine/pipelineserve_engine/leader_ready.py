"""Whether a leader is ready, as an exit status: the readiness of pods that hold other stages.

Run as `python -m pipelineserve_engine.leader_ready VARIABLE PORT PATH`; the environment variable
has the leader's host, since nothing replaces variables in the command of a probe, and the path
answers 200 once the leader is ready. It runs every few seconds, so it imports next to nothing.
"""

import http.client
import os
import sys
from collections.abc import Mapping, Sequence

_TIMEOUT_S = 4.0


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """0 if the leader says that it is ready; else 1, with the reason on stderr."""
    if len(arguments) != 3 or not arguments[1].isdecimal() or not environ.get(arguments[0]):
        sys.stderr.write(
            "error: expected a variable that holds the leader's host, its port, and a path; "
            f"got {' '.join(arguments) or 'nothing'}\n"
        )
        return 1
    host, port = environ[arguments[0]], int(arguments[1])
    # Not urllib: a proxy in the environment is not meant for the neighbour.
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", arguments[2])
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        sys.stderr.write(f"the leader {host}:{port} does not answer: {error}\n")
        return 1
    finally:
        connection.close()
    if answer.status == http.HTTPStatus.OK:
        return 0
    sys.stderr.write(f"the leader {host}:{port} is not ready: {text}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
