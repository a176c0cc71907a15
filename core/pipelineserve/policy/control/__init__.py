"""The controller's pure side: percentiles to merge, guards on what is sent, what is feasible."""
