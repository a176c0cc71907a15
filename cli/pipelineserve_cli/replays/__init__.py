"""`pserve replay`: what was recorded, decided or run again."""
