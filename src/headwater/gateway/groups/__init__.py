"""Groups of every kind over HTTP: members, lag, departures."""
