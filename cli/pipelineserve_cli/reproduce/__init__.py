"""`pserve reproduce`: the published experiments on the twin, with an acceptance table."""
