"""Which layout serves a load: closed formulas, a search over layouts, and the twin as its judge."""
