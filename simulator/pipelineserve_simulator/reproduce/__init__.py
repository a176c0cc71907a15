"""The published experiments on the twin: what is run, what is kept, what is accepted."""
