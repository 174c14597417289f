"""A collection of this process: in a file, or in a folder that is gone when it is closed."""
