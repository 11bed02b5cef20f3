"""One module for each command: options, one call of the core, one renderer."""
