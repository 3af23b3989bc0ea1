"""What a program is, its settings, and how it is run from a command line."""
