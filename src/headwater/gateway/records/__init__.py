"""Records written and read over HTTP, without a group."""
