"""`pserve plan`: which layout serves a load on so many GPUs, and why the others do not."""
