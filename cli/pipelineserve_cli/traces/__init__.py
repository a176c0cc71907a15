"""`pserve trace`: what the stages did and when, as a trace, a summary and a picture."""
