"""What arrives: lengths, arrivals and workloads, fitted to public traces or read from files."""
