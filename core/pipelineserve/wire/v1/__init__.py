"""Version 1 of the contracts."""
