"""What a service sees: the collections of a data directory, their description and their check."""
