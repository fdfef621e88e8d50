"""Topics, records, groups and the cluster over HTTP."""
