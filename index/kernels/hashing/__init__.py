"""Counter-based randomness, GCWS samples, band keys and random bins."""
