"""The schema registry over HTTP, with the interface that serializers know from Confluent's."""
