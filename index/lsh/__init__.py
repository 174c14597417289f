"""Hash tables over bands: building, probing with a proven recall, candidates by depth."""
