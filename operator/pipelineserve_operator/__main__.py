"""The operator's process: `python -m pipelineserve_operator --namespace NAMESPACE ...`."""

from pipelineserve_operator.process import main

if __name__ == "__main__":
    main()
