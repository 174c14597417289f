"""Brute force: dense scans, of copies in bytes first, and an inverted index of sparse rows."""
