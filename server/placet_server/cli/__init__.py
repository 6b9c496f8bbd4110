"""The command line. Importing it needs no server extras."""
