"""A small pod runner: the containers of rendered objects as processes of this machine."""
