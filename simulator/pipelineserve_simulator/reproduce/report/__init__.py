"""The report: one HTML file with tables and drawn figures."""
