"""A nursery that imports everything itself: `python -m pipelineserve_engine.nursery`."""

import socket

from pipelineserve_engine.nursery.tending import CHANNEL_DESCRIPTOR, tend

if __name__ == "__main__":
    tend(socket.socket(fileno=CHANNEL_DESCRIPTOR))
