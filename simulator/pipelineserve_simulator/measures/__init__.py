"""What became of it: latencies, attainment, goodput, capacity, bubbles, and their uncertainty."""
