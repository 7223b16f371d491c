"""Reports on what was recorded: documented path, observed path, terminal. Reads records only."""
