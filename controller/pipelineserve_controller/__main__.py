"""The controller's process: `python -m pipelineserve_controller --engine-address ADDRESS`."""

import sys

from pipelineserve_controller.sidecar import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
