"""A process that forks a nursery as the server does, and of that a stage: `MODEL_FOLDER THREADS`.

Prints how the stage ended.
"""

import os
import socket
import sys

import msgspec

from pipelineserve_engine import server
from pipelineserve_engine.nursery.owner import own_nursery
from remote_stages import an_order
from telling_worker import MODULE


def main(folder: str, num_threads: int) -> int:
    """Have one stage forked and wait for its end."""
    listener = socket.create_server(("127.0.0.1", 0))
    os.set_inheritable(listener.fileno(), True)
    settings = msgspec.structs.replace(an_order(), model_folder=folder, num_threads=num_threads)
    sys.stdout.write(f"{server.__name__} forks\n")  # in a buffer that only this process writes
    with listener, own_nursery() as nursery:
        stage = nursery.start(MODULE, settings)
        while (end := stage.poll()) is None:
            stage.wait(0.1)
        stage.reap()
        sys.stdout.write(end.text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
