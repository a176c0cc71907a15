"""`pserve profile`: what one model's steps cost on this machine, as a file that the twin loads."""
