"""What loads are made of and judged by: arrivals, lengths, files of requests, targets, shares."""
