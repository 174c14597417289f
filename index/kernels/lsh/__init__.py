"""Band tables: look-up, probing, gathering of candidates, bucket joins."""
