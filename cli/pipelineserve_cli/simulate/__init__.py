"""`pserve simulate`: one scenario in the digital twin."""
