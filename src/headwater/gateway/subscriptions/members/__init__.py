"""Members of groups that live in the gateway: their sessions, their leases, and records for the requests that wait."""
