"""A collection of this process: in a file, or in memory."""
