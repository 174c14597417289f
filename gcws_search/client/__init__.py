"""Collections for programs: on a server, in a file, or in memory, behind one interface."""
