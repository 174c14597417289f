"""Commands of the command line that are larger than a function, and of the container."""
