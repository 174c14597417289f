"""The command line, a file a family of commands; each is imported when it is called."""
