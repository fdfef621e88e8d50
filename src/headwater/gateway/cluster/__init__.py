"""The nodes of the cluster over HTTP, and the pages that a broker has beside the Kafka protocol."""
