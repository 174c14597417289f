"""Who may do what, and how much: keys, admission, limits."""
