"""`pserve status`: what a controller's live page shows, in a terminal."""
