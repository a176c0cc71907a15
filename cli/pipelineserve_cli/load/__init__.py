"""`pserve load`: an open-loop load on an OpenAI-compatible server, and what it measured."""
