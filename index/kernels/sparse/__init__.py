"""Postings of sparse rows: query terms, MaxScore scans, prefix joins."""
